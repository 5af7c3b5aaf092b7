// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"syscall"
	"time"

	"github.com/weir-storage/weir/cachepool"
)

// nearly is how much of a file system may be used, in percent: what is kept to be read fills a
// pool.
const nearly = 95

// Report returns how the pool's file system is.
func (p *Pool) Report() cachepool.Report {
	out := cachepool.Report{At: time.Now(), Path: p.cfg.Path}
	var st syscall.Statfs_t
	if err := syscall.Statfs(p.cfg.Path, &st); err != nil {
		out.Conditions = []cachepool.Condition{{Type: cachepool.Healthy, Reason: "NoAnswer", Message: p.fail("see to", err,
			"see whether its disk is mounted").Error()}}
		return out
	}
	out.Conditions = []cachepool.Condition{{Type: cachepool.Healthy, Is: true, Reason: "Mounted", Message: "its file system answers"}}
	if used, all := st.Blocks-st.Bfree, st.Blocks-st.Bfree+st.Bavail; all > 0 { // as df has it
		out.Conditions = append(out.Conditions, cachepool.FullCondition("its file system", int(100*used/all), nearly,
			"when it is full, writes of all volumes wait: free something else there, make the disk larger, or lower the pool's size"))
	}
	return out
}
