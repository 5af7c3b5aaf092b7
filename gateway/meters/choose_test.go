// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/metrics"
	"github.com/weir-storage/weir/volume"
)

// TestOwnVolumesComeFirst: when there are too many volumes, those with a copy at the gateway have
// metrics.
func TestOwnVolumesComeFirst(t *testing.T) {
	m := New(time.Now)
	m.most = 10
	var volumes []Volume
	m.Watch(func() State { return State{Volumes: volumes} }, nil)
	for i := range 30 {
		volumes = append(volumes, Volume{Name: fmt.Sprintf("far.v%d", i)})
	}
	if _, of := series(t, m); len(of) != 10 {
		t.Fatalf("%d volumes have metrics", len(of))
	}
	for i := range 8 {
		volumes = append(volumes, Volume{Name: fmt.Sprintf("near.v%d", i), Copy: &Copy{Role: "Follower"}})
	}
	_, of := series(t, m)
	for i := range 8 {
		if of[fmt.Sprintf("near.v%d", i)] == 0 {
			t.Errorf("volume %d, which has a copy here, has no metrics", i)
		}
	}
	if len(of) != 10 {
		t.Errorf("%d volumes have metrics", len(of))
	}
}

// TestFirstErrorIsSeen: the counters of errors are there, at 0, before the first error. An error of
// entering a volume counts as the volume's.
func TestFirstErrorIsSeen(t *testing.T) {
	m := New(time.Now)
	id := volume.ID{1}
	m.Watch(func() State { return State{Volumes: []Volume{{Name: "v"}}} },
		func(uuid string) (string, bool) { return "v", uuid == id.String() })
	count := func() (total float64, n int) {
		for _, f := range gather(t, m) {
			if f.GetName() != metrics.VolumeErrors.Name {
				continue
			}
			for _, x := range f.GetMetric() {
				total += x.GetCounter().GetValue()
				n++
			}
		}
		return total, n
	}
	if total, n := count(); total != 0 || n != len(errorLabels) {
		t.Errorf("%d counters, of %v errors", n, total)
	}
	m.Operation(nfs.Operation{Op: xdr.OP_PUTFH, Refused: id, Status: xdr.NFS4ERR_DELAY})
	m.Operation(nfs.Operation{Op: xdr.OP_PUTFH, Refused: volume.ID{9}, Status: xdr.NFS4ERR_DELAY})
	if total, n := count(); total != 1 || n != len(errorLabels) {
		t.Errorf("%d counters, of %v errors", n, total)
	}
}

// TestWhyClientsComeAgain: what asks clients to come again is told apart.
func TestWhyClientsComeAgain(t *testing.T) {
	for want, o := range map[string]nfs.Operation{
		"no_home": {Status: xdr.NFS4ERR_DELAY}, "busy": {Status: xdr.NFS4ERR_DELAY, Busy: true}, "grace": {Status: xdr.NFS4ERR_GRACE},
	} {
		if got := errorOf(o); got != want {
			t.Errorf("%+v is counted as %s, want %s", o, got, want)
		}
	}
}
