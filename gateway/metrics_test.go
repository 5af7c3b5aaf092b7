// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/weir-storage/weir/federation"
	nfsclient "github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/metrics"
)

// read reads the metrics of a site's gateway, by name.
func (c *cluster) read(site string) map[string]*dto.MetricFamily {
	c.t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c.at(site).cfg.Meters)
	all, err := r.Gather()
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]*dto.MetricFamily{}
	for _, f := range all {
		out[f.GetName()] = f
	}
	return out
}

// value returns a metric with all these labels, name=value; of a histogram its count.
func value(all map[string]*dto.MetricFamily, d *metrics.Definition, labels ...string) (float64, bool) {
	for _, m := range all[d.Name].GetMetric() {
		has := 0
		for _, l := range m.GetLabel() {
			if slices.Contains(labels, l.GetName()+"="+l.GetValue()) {
				has++
			}
		}
		if has == len(labels) {
			return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()), true
		}
	}
	return 0, false
}

// TestMetrics: every metric of a gateway is there when it has served, has the labels and the kind
// that its definition says, and the right values.
func TestMetrics(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c") // c has no copy
	id := c.createAt("v", manifest("v", 2), []string{"a", "b"})
	c.members(id, "a", "b")
	c.admit("a", id)
	c.admit("b", id)
	ctx := within(t, hang)
	const size = 5000
	data := make([]byte, size)
	if _, err := rand.Read(data); err != nil { // so that it is not compressed
		t.Fatal(err)
	}
	homeOf := func() string {
		h, _ := c.at("a").view.Home(id)
		return strings.TrimPrefix(h, "g")
	}
	for _, site := range []string{"a", "b"} {
		nfs, root := c.mount(ctx, site, "client of "+site, "v")
		f, err := nfs.Open(ctx, root, "f-"+site, nfsclient.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_BOTH, Create: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nfs.Write(ctx, f.FH(), f.Stateid(), data, 0, xdr.UNSTABLE4); err != nil {
			t.Fatal(err)
		}
		if _, err := nfs.Commit(ctx, f.FH()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := nfs.Read(ctx, f.FH(), f.Stateid(), make([]byte, size), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := nfs.Mount(ctx, "nothing of this name"); err == nil {
			t.Error("a volume that is not there is found")
		}
	}
	home := homeOf()
	other := map[string]string{"a": "b", "b": "a"}[home]
	c.until("the follower has caught up", func() error {
		if lag, _ := value(c.read(home), metrics.ReplicaLagBytes, "volume=v", "gateway=g"+other, "site="+other); lag != 0 {
			return fmt.Errorf("it lags %v bytes", lag)
		}
		return nil
	})

	c.until("it is ready", func() error { return c.at(home).cfg.Health.Ready() })
	c.until("it knows the volume's snapshots", func() error {
		if c.at(home).snapshots.Report(id) == nil {
			return errors.New("it does not")
		}
		return nil
	})

	all := c.read(home)
	for _, want := range []struct {
		d      *metrics.Definition
		labels []string
		least  float64
		most   float64
	}{
		{metrics.NFSOperationSeconds, []string{"operation=WRITE"}, 1, 1},
		{metrics.VolumeOperationSeconds, []string{"volume=v", "kind=write"}, 1, 1},
		{metrics.VolumeOperationSeconds, []string{"volume=v", "kind=read"}, 1, 1},
		{metrics.VolumeOperationSeconds, []string{"volume=v", "kind=commit"}, 1, 1},
		{metrics.VolumeOperationSeconds, []string{"volume=v", "kind=metadata"}, 1, 100},
		{metrics.VolumeReadBytes, []string{"volume=v"}, size, size},
		{metrics.VolumeWrittenBytes, []string{"volume=v"}, size, size},
		{metrics.NFSRefused, []string{"reason=unknown"}, 1, 1},
		{metrics.NFSRefused, []string{"reason=not_admitted"}, 0, 0},
		{metrics.VolumeRole, []string{"volume=v", "role=Home"}, 1, 1},
		{metrics.VolumeServing, []string{"volume=v"}, 1, 1},
		{metrics.VolumeStalled, []string{"volume=v"}, 0, 0},
		{metrics.VolumePromised, []string{"volume=v"}, 0.001, 1},
		{metrics.VolumeSnapshots, []string{"volume=v"}, 0, 0},
		{metrics.VolumeSnapshotProblem, []string{"volume=v"}, 0, 0},
		{metrics.VolumeProblem, []string{"volume=v"}, 0, 0},
		{metrics.ReplicaState, []string{"volume=v", "gateway=g" + home, "site=" + home, "state=Home"}, 1, 1},
		{metrics.ReplicaState, []string{"volume=v", "gateway=g" + other, "site=" + other, "state=Member"}, 1, 1},
		{metrics.CommitSeconds, []string{"volume=v"}, 1, 1e6},
		{metrics.CommitPartSeconds, []string{"part=local"}, 1, 1e6},
		{metrics.LogSyncSeconds, nil, 1, 1e6},
		{metrics.RoleChanges, []string{"role=Home"}, 1, 1},
		{metrics.ControlSwaps, []string{"outcome=done"}, 1, 100},
		{metrics.PoolUsedBytes, nil, 2 * size, 1 << 30},
		{metrics.PoolCondition, []string{"type=Healthy"}, 1, 1},
		{metrics.PoolVolumeBytes, []string{"volume=v", "what=log"}, 2 * size, 1 << 20},
		{metrics.PoolVolumeBytes, []string{"volume=v", "what=metadata"}, 1, 1 << 20},
		{metrics.NFSClients, nil, 1, 1},
		{metrics.NFSSlots, nil, 32, 32},
		{metrics.NFSSlotsUsed, nil, 0, 0},
		{metrics.NFSOpens, nil, 1, 1},
		{metrics.GatewayAlive, []string{"gateway=ga", "site=a"}, 1, 1},
		{metrics.RegistryTrusted, nil, 1, 1},
		{metrics.RegistrySilentSeconds, nil, 0, 1e6},
		{metrics.ClockDisputed, nil, 0, 0},
		{metrics.GatewayReady, nil, 1, 1},
	} {
		if got, ok := value(all, want.d, want.labels...); !ok || got < want.least || got > want.most {
			t.Errorf("%s %v is %v (there: %v), want %v to %v", want.d.Name, want.labels, got, ok, want.least, want.most)
		}
	}
	if n := len(all[metrics.ReplicaState.Name].GetMetric()); n != 2 {
		t.Errorf("%d copies have a state: %v", n, all[metrics.ReplicaState.Name])
	}
	if n, _ := value(c.read(other), metrics.Forwarded, "result=ok"); n < 1 {
		t.Error("the other gateway counts nothing that it forwarded")
	}

	// Each definition has its metric, and each metric its definition.
	elsewhere := []*metrics.Definition{metrics.Info, metrics.CertificateEnd, metrics.CharterSerial, // of any process
		metrics.RegistryCallSeconds} // the registry is in memory
	for _, d := range metrics.Catalog() {
		if !slices.Contains(d.Parts, metrics.Gateway) || slices.Contains(elsewhere, d) {
			continue
		}
		f := all[d.Name]
		if f == nil {
			t.Errorf("%s is defined, and not measured", d.Name)
			continue
		}
		if kind := strings.ToLower(f.GetType().String()); kind != string(d.Kind) {
			t.Errorf("%s is a %s, its definition says %s", d.Name, kind, d.Kind)
		}
		delete(all, d.Name)
	}
	for name := range all {
		t.Errorf("%s is measured, and not defined", name)
	}
	problems, err := testutil.GatherAndLint(func() prometheus.Gatherer {
		r := prometheus.NewRegistry()
		r.MustRegister(c.at(home).cfg.Meters)
		return r
	}())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}

	// A gateway that is gone is not alive, as the others see it.
	c.stop(other)
	c.reg.Expire("g" + other)
	c.until("its end is seen", func() error {
		if n, ok := value(c.read(home), metrics.GatewayAlive, "gateway=g"+other); !ok || n != 0 {
			return fmt.Errorf("alive: %v (there: %v)", n, ok)
		}
		return nil
	})
	c.until("the volume stalls", func() error {
		all := c.read(home)
		if n, _ := value(all, metrics.VolumeStalled, "volume=v"); n != 1 {
			return errors.New("it does not")
		}
		if n, _ := value(all, metrics.ReplicaState, "gateway=g"+other, "state=Lost"); n != 1 {
			return fmt.Errorf("the copy's states are %v", all[metrics.ReplicaState.Name])
		}
		return nil
	})
	c.start(other)

	// A volume that is deleted has no series.
	c.with(func(r federation.Registry) error {
		v, rev, err := r.GetVolume(context.Background(), id)
		if err == nil {
			v.Deleted = true
			_, err = r.UpdateVolume(context.Background(), rev, v)
		}
		return err
	})
	c.until("it has no series any more", func() error {
		for name, f := range c.read(home) {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "volume" {
						return fmt.Errorf("%s of %s", name, l.GetValue())
					}
				}
			}
		}
		return nil
	})
}
