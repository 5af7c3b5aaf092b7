// SPDX-License-Identifier: Apache-2.0

package zfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/weir-storage/weir/cachepool"
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

// TestSyncDisabled: a dataset that forgets what it said is durable is told of, by name.
func TestSyncDisabled(t *testing.T) {
	if c := durableCondition("tank/weir\tstandard\ntank/weir/volumes\talways\n"); c.Is {
		t.Error(c)
	}
	c := durableCondition("tank/weir\tstandard\ntank/weir/volumes/v1\tdisabled\n")
	if !c.Is || c.Type != cachepool.NotDurable || !strings.Contains(c.Message, "zfs set sync=standard tank/weir/volumes/v1") {
		t.Error(c)
	}
}

// TestUsage: what zpool iostat prints, and how much is used of the devices of each class.
func TestUsage(t *testing.T) {
	datadriven.RunTest(t, "testdata/usage.txt", func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd != "usage" {
			d.Fatalf(t, "unknown command %s", d.Cmd)
		}
		s := Status{Pool: "tank"}
		for _, arg := range d.CmdArgs {
			class, names, _ := strings.Cut(strings.Join(arg.Vals, ","), ":")
			for n := range strings.SplitSeq(names, ",") {
				s.Devices = append(s.Devices, cachepool.Device{Name: n, Class: cachepool.Class(class)})
			}
		}
		var out strings.Builder
		for _, u := range (Tools{}).classes(d.Input, s) {
			fmt.Fprintf(&out, "%s: %d of %d\n", u.Class, u.Used, u.Size)
		}
		return out.String()
	})
}

// TestCounters: where OpenZFS counts.
func TestCounters(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, kstatTable)
	text := "9 1 0x01 147 39984 5555 6666\nname                            type data\nhits                            4    900\n" +
		"misses                          4    100\nsize                            4    4096\nl2_hits                         4    60\n" +
		"l2_misses                       4    40\nl2_size                         4    8192\n"
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	arc, l2 := Tools{Root: root}.tiers()
	if arc == nil || *arc != (cachepool.Tier{Size: 4096, Hits: 900, Misses: 100}) ||
		l2 == nil || *l2 != (cachepool.Tier{Size: 8192, Hits: 60, Misses: 40}) {
		t.Errorf("%v, %v", arc, l2)
	}
	if arc, l2 = (Tools{Root: t.TempDir()}).tiers(); arc != nil || l2 != nil {
		t.Errorf("of no ZFS: %v, %v", arc, l2)
	}
}

// TestNoAnswer: that zpool does not answer any more is told, and what was known is kept.
func TestNoAnswer(t *testing.T) {
	p := &Pool{cfg: Config{Dataset: "tank/weir"}, name: "tank", folders: &folders{}}
	if r := p.Report(); !r.At.IsZero() || len(r.Conditions) != 0 {
		t.Errorf("before anybody looked: %+v", r)
	}
	for age, want := range map[time.Duration]string{0: "Online", 2 * silent: "NoAnswer"} {
		p.looked.Store(&cachepool.Report{At: time.Now().Add(-age), Conditions: []cachepool.Condition{
			said(cachepool.Degraded, true, "DevicesFail", "sda"), said(cachepool.Healthy, age == 0, "Online", "")}})
		r := p.Report()
		if len(r.Conditions) != 3 || r.Conditions[0].Reason != "DevicesFail" || r.Conditions[1].Reason != want {
			t.Errorf("%v later: %+v", age, r.Conditions)
		}
	}
}
