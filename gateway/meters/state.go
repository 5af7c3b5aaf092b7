// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/readcache"
	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/gateway/nfs"
	"github.com/weir-storage/weir/gateway/nfs/fair"
	"github.com/weir-storage/weir/metrics"
)

// State is a gateway's state at one moment.
type State struct {
	Volumes  []Volume // of the registry, by name
	Pools    []Pool
	Cache    engine.CacheStatus
	Reads    readcache.Counters
	NFS      nfs.Counters
	Waiting  map[string]int // requests that wait for long, by volume
	Clients  nfs.ClientCounts
	Memory   nfs.Room
	Gateways []Gateway
	Trusted  bool          // the registry is
	Silent   time.Duration // the registry has been
	Ready    bool
	Disputed bool // its clock is
}

// Pool is one of the gateway's pools.
type Pool struct {
	Name       string
	Room       cachepool.RoomStatus
	Conditions []cachepool.Condition
}

// Gateway is a gateway of the federation.
type Gateway struct {
	Name, Site string
	Alive      bool
}

// Volume is a volume at the gateway.
type Volume struct {
	Name    string
	Problem bool  // its copy should be open and is not
	Copy    *Copy // nil: none is open
}

// Copy is an open copy of a volume.
type Copy struct {
	Role             string
	Epoch            uint64
	Home             bool // it is home: the next five say something
	Serving, Stalled bool
	Alone            bool          // it has no other member
	Promised         time.Duration // how long the promises of all other members still last
	Replicas         []federation.ObservedReplica
	LogBytes         uint64
	CacheBytes       int64
	MetadataBytes    int64
	UploadQueue      uint64
	StoredBytes      uint64
	Blind            bool                  // Checkpoints says nothing
	Checkpoints      checkpoints.Condition // and what is condemned
	Snapshots        *snapshots.Report     // nil: the home is not here, or does not know yet
}

// Watch makes state the source of what is read, until stop is called. name returns a volume's name;
// false: it is not known.
func (m *Meters) Watch(state func() State, name func(uuid string) (string, bool)) (stop func()) {
	set := func(s func() State, n func(uuid string) (string, bool)) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.source, m.name = s, n
	}
	set(state, name)
	return func() { set(nil, nil) }
}

// Describe implements prometheus.Collector. It describes nothing, because which volumes there are
// is seen only later.
func (m *Meters) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *Meters) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	source := m.source
	m.mu.Unlock()
	if source != nil {
		m.state(source(), ch)
	}
	for _, c := range []prometheus.Collector{m.operation, m.volumeOperation, m.commit, m.commitPart, m.logSync, m.forwarded, m.registry,
		m.errors, m.read, m.written, m.roles, m.swaps, m.uploads, m.uploaded, m.refused, m.forged, m.scrubbed} {
		c.Collect(ch)
	}
}

// choose decides which volumes have metrics of their own: those that have a copy here come first,
// then those that have metrics. The others, and those that are gone, have none any more.
func (m *Meters) choose(all []Volume) (chosen []Volume) {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := make(map[string]bool, m.most)
	for _, wanted := range []func(v Volume) bool{
		func(v Volume) bool { return v.Copy != nil || v.Problem },
		func(v Volume) bool { return m.known[v.Name] },
		func(Volume) bool { return true },
	} {
		for _, v := range all {
			if len(there) < m.most && wanted(v) {
				there[v.Name] = true
			}
		}
	}
	for name := range m.known {
		if there[name] {
			continue
		}
		delete(m.known, name)
		delete(m.byName, name)
		of := prometheus.Labels{"volume": name}
		for _, v := range []interface {
			DeletePartialMatch(prometheus.Labels) int
		}{m.volumeOperation, m.commit, m.errors, m.read, m.written} {
			v.DeletePartialMatch(of)
		}
	}
	for _, v := range all {
		if there[v.Name] {
			m.known[v.Name] = true
			m.noErrors(v.Name)
			chosen = append(chosen, v)
		}
	}
	return chosen
}

// Descriptions of what is made when it is read.
var descs = func() map[*metrics.Definition]*prometheus.Desc {
	out := map[*metrics.Definition]*prometheus.Desc{}
	for _, d := range metrics.Catalog() {
		out[d] = d.Desc()
	}
	return out
}()

func (m *Meters) state(s State, ch chan<- prometheus.Metric) {
	put := func(d *metrics.Definition, value float64, labels ...string) {
		kind := prometheus.GaugeValue
		if d.Kind == metrics.Counter {
			kind = prometheus.CounterValue
		}
		ch <- prometheus.MustNewConstMetric(descs[d], kind, value, labels...)
	}
	chosen := m.choose(s.Volumes)
	put(metrics.VolumesWithout, float64(len(s.Volumes)-len(chosen)))
	for _, v := range chosen {
		put(metrics.VolumeProblem, truth(v.Problem), v.Name)
		put(metrics.VolumeWaiting, float64(s.Waiting[v.Name]), v.Name)
		if c := v.Copy; c != nil {
			c.put(put, v.Name)
		}
	}
	for _, p := range s.Pools {
		for _, c := range p.Conditions {
			put(metrics.PoolCondition, truth(c.Is), p.Name, c.Type)
		}
		put(metrics.PoolLimitBytes, float64(p.Room.Limit), p.Name)
		put(metrics.PoolUsedBytes, float64(p.Room.Used), p.Name)
		put(metrics.PoolReservedBytes, float64(p.Room.ReservedForDelete), p.Name)
	}
	put(metrics.BlockReadBytes, float64(s.Reads.LogBytes), "log")
	put(metrics.BlockReadBytes, float64(s.Reads.CacheBytes), "cache")
	put(metrics.BlockReadBytes, float64(s.Reads.ElsewhereBytes), "elsewhere")
	put(metrics.CacheHits, float64(s.Cache.Hits))
	put(metrics.CacheMisses, float64(s.Cache.Misses))
	put(metrics.CacheBytes, float64(s.Cache.Bytes))
	put(metrics.CacheLimitBytes, float64(s.Cache.Limit))
	put(metrics.NFSRequests, float64(s.NFS.Requests))
	put(metrics.NFSRepeats, float64(s.NFS.Repeats))
	put(metrics.NFSDropped, float64(s.NFS.Dropped))
	put(metrics.NFSPanics, float64(s.NFS.Panics))
	for r, n := range s.NFS.Refused {
		put(metrics.NFSRefused, float64(n), nfs.Reason(r).String())
	}
	for of, u := range map[string]fair.Use{"requests": s.Memory.Requests, "replies": s.Memory.Replies, "states": s.Memory.States,
		"sessions": s.Memory.Sessions} {
		put(metrics.NFSMemory, float64(u.Used), of)
		put(metrics.NFSMemoryLimit, float64(u.Limit), of)
	}
	put(metrics.NFSConnections, float64(s.Clients.Connections))
	put(metrics.NFSClients, float64(s.Clients.Clients))
	put(metrics.NFSSessions, float64(s.Clients.Sessions))
	put(metrics.NFSSlots, float64(s.Clients.Slots))
	put(metrics.NFSSlotsUsed, float64(s.Clients.SlotsUsed))
	put(metrics.NFSOpens, float64(s.Clients.Opens))
	put(metrics.NFSLocks, float64(s.Clients.Locks))
	for _, g := range s.Gateways {
		put(metrics.GatewayAlive, truth(g.Alive), g.Name, g.Site)
	}
	put(metrics.RegistryTrusted, truth(s.Trusted))
	put(metrics.RegistrySilentSeconds, s.Silent.Seconds())
	put(metrics.ClockDisputed, truth(s.Disputed))
	put(metrics.GatewayReady, truth(s.Ready))
}

// put puts out the metrics of a copy.
func (c *Copy) put(put func(d *metrics.Definition, value float64, labels ...string), name string) {
	put(metrics.VolumeRole, 1, name, c.Role)
	put(metrics.VolumeEpoch, float64(c.Epoch), name)
	put(metrics.PoolVolumeBytes, float64(c.LogBytes), name, "log")
	put(metrics.PoolVolumeBytes, float64(c.MetadataBytes), name, "metadata")
	put(metrics.PoolVolumeBytes, float64(c.CacheBytes), name, "cache")
	put(metrics.UploadQueueBytes, float64(c.UploadQueue), name)
	put(metrics.StoredBytes, float64(c.StoredBytes), name)
	if !c.Blind {
		put(metrics.CondemnedBytes, float64(c.Checkpoints.Condemned), name)
		put(metrics.PackBytes, float64(c.Checkpoints.Packs), name)
		put(metrics.PacksFetched, float64(c.Checkpoints.Fetched), name)
		put(metrics.CheckpointDiffers, truth(c.Checkpoints.Differs != 0), name)
	}
	if !c.Home {
		return
	}
	put(metrics.VolumeServing, truth(c.Serving), name)
	put(metrics.VolumeStalled, truth(c.Stalled), name)
	if c.Snapshots != nil {
		put(metrics.VolumeSnapshots, float64(c.Snapshots.Count()), name)
		put(metrics.VolumeSnapshotProblem, truth(c.Snapshots.Failing() != ""), name)
	}
	if !c.Alone {
		put(metrics.VolumePromised, c.Promised.Seconds(), name)
	}
	for _, r := range c.Replicas {
		put(metrics.ReplicaState, 1, name, r.Gateway, r.Site, string(r.State))
		if r.State == federation.ReplicaHome {
			continue
		}
		if !r.Unheard {
			put(metrics.ReplicaLagSeconds, r.LagSeconds, name, r.Gateway, r.Site)
			put(metrics.ReplicaLagBytes, float64(r.LagBytes), name, r.Gateway, r.Site)
		}
		put(metrics.ReplicaStuckSeconds, r.StuckSeconds, name, r.Gateway, r.Site)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
