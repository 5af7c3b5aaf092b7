// SPDX-License-Identifier: Apache-2.0

package zfs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestStatus: what zpool prints, of OpenZFS 2.x and of zfs-fuse, and what is said of it.
func TestStatus(t *testing.T) {
	datadriven.RunTest(t, "testdata/status.txt", func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd != "status" {
			d.Fatalf(t, "unknown command %s", d.Cmd)
		}
		full := 12
		d.MaybeScanArgs(t, "full", &full)
		s, err := parseStatus(strings.ReplaceAll(d.Input, "|", "\t"))
		if err != nil {
			return err.Error() + "\n"
		}
		var out strings.Builder
		for _, v := range s.Devices {
			fmt.Fprintf(&out, "%-5s %s", v.Class, v.Name)
			if v.Group != "" {
				fmt.Fprintf(&out, " of %s", v.Group)
			}
			fmt.Fprintf(&out, " %s %d %d %d (%s)\n", v.State, v.Read, v.Write, v.Checksum, v.Note)
		}
		for _, c := range s.Conditions(d.HasArg("logs"), full) {
			fmt.Fprintf(&out, "%s=%t %s: %s\n", c.Type, c.Is, c.Reason, c.Message)
		}
		return out.String()
	})
}

// TestHistory: what zpool history prints, and the last line that tells that a dataset went back.
func TestHistory(t *testing.T) {
	datadriven.RunTest(t, "testdata/history.txt", func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd != "history" {
			d.Fatalf(t, "unknown command %s", d.Cmd)
		}
		all := parseHistory(d.Input)
		var out strings.Builder
		for _, arg := range d.CmdArgs {
			fmt.Fprintf(&out, "%s: %s\n", arg.Key, all.last(arg.Key))
		}
		return out.String()
	})
}
