// SPDX-License-Identifier: Apache-2.0

package tiers

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// stuck: zfs-fuse, which stands for ZFS here, did not go on in a test that failed.
var stuck atomic.Bool

// TestMain runs the tests once more, in a new cluster, if zfs-fuse stopped going on: about once in
// a hundred runs its pool writes nothing any more, whatever is asked. What Weir does then is tested
// in cachepool/zfs and test/e2e/pools, with devices that fail.
func TestMain(m *testing.M) {
	code := m.Run()
	if code != 0 && stuck.Load() {
		fmt.Println("zfs-fuse did not go on: the tests run once more, in a new cluster")
		stuck.Store(false)
		code = m.Run()
	}
	os.Exit(code)
}

// stuckTime is how long zpool may take: it asks for the state of a pool that nobody harmed.
const stuckTime = 30 * time.Second

// looksAtZFS notes whether zfs-fuse goes on when the test fails, and what its threads wait for.
func (s site) looksAtZFS() {
	s.Cleanup(func() {
		if !s.Failed() {
			return
		}
		for range 2 {
			ctx, cancel := context.WithTimeout(context.Background(), 2*stuckTime)
			out, err := s.HostNode().Output(ctx, fmt.Sprintf("timeout -s KILL %d zpool status tank; echo ended with $?",
				int(stuckTime.Seconds())))
			cancel()
			s.Logf("zpool status: %v: %s", err, out)
			if err == nil && !strings.Contains(out, "ended with 137") { // it answered
				return
			}
		}
		stuck.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), stuckTime)
		defer cancel()
		out, err := s.HostNode().Output(ctx, `for p in $(pidof zfs-fuse); do for t in /proc/$p/task/*; do
			echo "$(basename $t) $(cat $t/comm) $(cat $t/wchan) $(cut -d' ' -f1-4 $t/syscall)"; done; done`)
		s.Logf("threads of zfs-fuse: %v\n%s", err, out)
	})
}
