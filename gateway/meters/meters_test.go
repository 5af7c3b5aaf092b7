// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/nfs"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/metrics"
	"github.com/weir-storage/weir/replica"
)

// gather reads m.
func gather(t *testing.T, m *Meters) []*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(m)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// series reads m, and returns how many series there are, and how many of each volume.
func series(t *testing.T, m *Meters) (all int, of map[string]int) {
	t.Helper()
	of = map[string]int{}
	for _, f := range gather(t, m) {
		for _, x := range f.GetMetric() {
			n := 1
			if h := x.GetHistogram(); h != nil {
				n = len(h.GetBucket()) + 3 // the bucket +Inf, the sum and the count
			}
			all += n
			for _, l := range x.GetLabel() {
				if l.GetName() == "volume" {
					of[l.GetValue()] += n
				}
			}
		}
	}
	return all, of
}

// use is a volume of which all is measured, at its home, with three copies.
func use(i int) Volume {
	v := Volume{Name: fmt.Sprintf("team.v%d", i), Copy: &Copy{Role: "Home", Home: true}}
	for _, s := range []federation.ReplicaState{federation.ReplicaHome, federation.ReplicaMember, federation.ReplicaFollower} {
		v.Copy.Replicas = append(v.Copy.Replicas, federation.ObservedReplica{Gateway: "g" + string(s), Site: string(s), State: s})
	}
	return v
}

func operate(m *Meters, v Volume) {
	for _, op := range []xdr.Op{xdr.OP_PUTFH, xdr.OP_READ, xdr.OP_WRITE, xdr.OP_COMMIT, xdr.OP_GETATTR} {
		m.Operation(nfs.Operation{Op: op, Volume: v.Name, Took: time.Millisecond, Bytes: 7})
	}
	for _, st := range []xdr.Status{xdr.NFS4ERR_IO, xdr.NFS4ERR_NOSPC, xdr.NFS4ERR_NOENT} {
		m.Operation(nfs.Operation{Op: xdr.OP_OPEN, Volume: v.Name, Status: st})
	}
	m.Committed(v.Name, time.Millisecond, 3*time.Millisecond)
}

// TestDamagedIsNotTheStores: a segment that is damaged here says nothing of the store.
func TestDamagedIsNotTheStores(t *testing.T) {
	m := New(time.Now)
	m.Uploaded(1, fmt.Errorf("%w: no good copy", replica.ErrDamaged))
	m.Uploaded(1, errors.New("the store does not answer"))
	m.Uploaded(1, nil)
	for _, f := range gather(t, m) {
		if f.GetName() != metrics.Uploads.Name {
			continue
		}
		got := map[string]float64{}
		for _, x := range f.GetMetric() {
			got[x.GetLabel()[0].GetValue()] = x.GetCounter().GetValue()
		}
		if want := map[string]float64{"damaged": 1, "failed": 1, "ok": 1}; !maps.Equal(got, want) {
			t.Errorf("uploads are %v, want %v", got, want)
		}
		return
	}
	t.Error("uploads are not counted")
}

// TestSeriesAreBounded: series grow with the number of volumes, up to a bound, and with nothing
// else. The reference says how many a volume has.
func TestSeriesAreBounded(t *testing.T) {
	m := New(time.Now)
	m.most = 1200 // of metrics.MaxVolumes, which takes longer
	var volumes []Volume
	m.Watch(func() State { return State{Volumes: volumes} }, func(uuid string) (string, bool) { return uuid, true })
	count := func(n int) (int, map[string]int) {
		for i := len(volumes); i < n; i++ {
			volumes = append(volumes, use(i))
		}
		series(t, m) // so that the new ones are known
		for _, v := range volumes {
			operate(m, v)
		}
		return series(t, m)
	}
	none, _ := count(0)
	thousand, of := count(1000)
	const said = 106 // in docs/reference/metrics.md
	for name, n := range of {
		if n > said || n < said-10 {
			t.Fatalf("volume %s has %d series, the reference says %d", name, n, said)
		}
	}
	if bound := none + 200 + 1000*said; len(of) != 1000 || thousand > bound {
		t.Errorf("1000 volumes have %d series, of %d volumes; the bound is %d", thousand, len(of), bound)
	}
	most, of := count(m.most + 100)
	if bound := none + 200 + (m.most+1)*said; len(of) != m.most+1 || most > bound {
		t.Errorf("%d volumes have %d series, of %d volumes; the bound is %d", len(volumes), most, len(of), bound)
	}
	if of[metrics.OtherVolumes] == 0 {
		t.Error("what is done with volumes that have no metrics is not counted")
	}
	volumes = volumes[:10]
	if left, of := series(t, m); len(of) != 10+1 || left > none+200+11*said {
		t.Errorf("%d series of %d volumes are left of 10", left, len(of))
	}
	// Volumes that had none have some when there is room again.
	if _, of := count(20); of["team.v15"] < said-10 {
		t.Errorf("a new volume has %d series", of["team.v15"])
	}
}

// TestSourceEnds: a gateway that ended is not asked any more.
func TestSourceEnds(t *testing.T) {
	m := New(time.Now)
	stop := m.Watch(func() State { return State{Volumes: []Volume{{Name: "v"}}} }, nil)
	asked := func() bool {
		return slices.ContainsFunc(gather(t, m), func(f *dto.MetricFamily) bool { return f.GetName() == metrics.VolumeProblem.Name })
	}
	if !asked() {
		t.Error("it is not asked")
	}
	stop()
	if asked() {
		t.Error("it is still asked")
	}
}
