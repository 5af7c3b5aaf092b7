// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
)

// TestWishes: a record asks for snapshots in the generation that it has, and what cannot be asked
// for is refused. A policy of snapshots is a change as any other.
func TestWishes(t *testing.T) {
	was := federation.Volume{UUID: "u", Name: "v", Generation: 3, Sites: []string{"a"}}
	is := was
	is.Snapshots = []snapshots.Wish{{Name: "a", UID: "1"}}
	if err := federation.CheckUpdate(was, is); err != nil {
		t.Error(err)
	}
	is.Snapshots = []snapshots.Wish{{Name: "@1", UID: "1"}}
	if err := federation.CheckUpdate(was, is); !errors.Is(err, federation.ErrInvalid) {
		t.Error(err)
	}
	is = was
	is.Spec.Snapshots.Window = federation.Duration(time.Hour)
	if err := federation.CheckUpdate(was, is); !errors.Is(err, federation.ErrInvalid) {
		t.Error(err)
	}
}

// TestSnapshotsAreBounded: a record that asks for as much as it can, and a report of as much as
// there can be, are far from what etcd takes at a time, which is 1.5 MB.
func TestSnapshotsAreBounded(t *testing.T) {
	name := func(i int) string { return strings.Repeat("n", snapshots.MaxName-4) + fmt.Sprintf("%04d", i) }
	v, o := federation.Volume{}, federation.Observed{Snapshots: &snapshots.Report{}}
	for i := range snapshots.MaxWishes {
		v.Snapshots = append(v.Snapshots, snapshots.Wish{Name: name(i), UID: strings.Repeat("u", 36), Drop: true})
	}
	for i := range snapshots.MaxReported {
		o.Snapshots.All = append(o.Snapshots.All, snapshots.Snapshot{Name: name(i), UID: strings.Repeat("u", 36),
			State: snapshots.StateTaken, Time: time.Unix(1<<31, 1), Bytes: 1 << 50, Inodes: 1 << 40})
	}
	for record, most := range map[any]int{&v: 30 << 10, &o: 120 << 10} {
		text, err := federation.Encode(record)
		if err != nil || len(text) > most {
			t.Errorf("%T takes %d bytes, more than %d; %v", record, len(text), most, err)
		}
	}
}
