// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/nfs"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/metrics"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/protocol"
	"github.com/weir-storage/weir/volume"
)

// Meters has a gateway's metrics. It is a prometheus.Collector, to be registered once. Its methods
// may be called from many goroutines and do not block.
type Meters struct {
	now  func() time.Time
	most int // volumes that have metrics of their own

	operation, volumeOperation, commit, commitPart, logSync, forwarded, registry      *prometheus.HistogramVec
	errors, read, written, roles, swaps, uploads, uploaded, refused, forged, scrubbed *prometheus.CounterVec

	mu     sync.Mutex
	source func() State // nil: the gateway does not run
	name   func(uuid string) (name string, ok bool)
	known  map[string]bool      // volumes that have metrics of their own, by name
	byName map[string]*ofVolume // their metrics of operations
}

// ofVolume has the metrics of a volume that each operation needs.
type ofVolume struct {
	kinds         [nfs.Kinds]prometheus.Observer
	read, written prometheus.Counter
	errors        map[string]prometheus.Counter // by label
}

var (
	_ replica.Meter        = (*Meters)(nil)
	_ prometheus.Collector = (*Meters)(nil)
)

// New returns the metrics of a gateway. now is for the time that calls of the registry take.
func New(now func() time.Time) *Meters {
	m := &Meters{now: now, most: metrics.MaxVolumes, known: map[string]bool{}, byName: map[string]*ofVolume{}}
	for to, d := range map[**prometheus.HistogramVec]*metrics.Definition{
		&m.operation: metrics.NFSOperationSeconds, &m.volumeOperation: metrics.VolumeOperationSeconds, &m.commit: metrics.CommitSeconds,
		&m.commitPart: metrics.CommitPartSeconds, &m.logSync: metrics.LogSyncSeconds, &m.forwarded: metrics.Forwarded,
		&m.registry: metrics.RegistryCallSeconds,
	} {
		*to = d.NewHistogram()
	}
	for to, d := range map[**prometheus.CounterVec]*metrics.Definition{
		&m.errors: metrics.VolumeErrors, &m.read: metrics.VolumeReadBytes, &m.written: metrics.VolumeWrittenBytes,
		&m.roles: metrics.RoleChanges, &m.swaps: metrics.ControlSwaps, &m.uploads: metrics.Uploads,
		&m.uploaded: metrics.UploadedBytes, &m.refused: metrics.CallsRefused, &m.forged: metrics.RecordsForged,
		&m.scrubbed: metrics.Scrubbed,
	} {
		*to = d.NewCounter()
	}
	// What may happen for the first time just when it matters is there from the beginning, at 0.
	for _, r := range []protocol.Role{protocol.Follower, protocol.Candidate, protocol.Starting, protocol.Home, protocol.Failed} {
		m.roles.WithLabelValues(r.String())
	}
	for _, o := range outcomes {
		m.swaps.WithLabelValues(o)
	}
	for _, r := range []string{ok, failed} {
		m.uploads.WithLabelValues(r)
		m.forwarded.WithLabelValues(r)
	}
	for _, r := range []string{"whole", "healed", "damaged"} {
		m.scrubbed.WithLabelValues(r)
	}
	for _, p := range []string{local, members} {
		m.commitPart.WithLabelValues(p)
	}
	m.uploaded.WithLabelValues()
	m.refused.WithLabelValues(string(pki.PartNode), "Carry")
	for _, k := range []federation.Kind{federation.KindControl, federation.KindVolume, federation.KindKeyring, federation.KindSite,
		federation.KindPurged} {
		m.Forged(k, 0)
	}
	m.logSync.WithLabelValues()
	return m
}

// Forged counts records of the registry that do not count (signed.New).
func (m *Meters) Forged(kind federation.Kind, n int) {
	m.forged.WithLabelValues(string(kind)).Add(float64(n))
}

// Refused is peers.Watch's Refused.
func (m *Meters) Refused(id pki.Identity, method string) {
	m.refused.WithLabelValues(string(id.Part), method[strings.LastIndexByte(method, '/')+1:]).Inc()
}

// Values of labels.
const (
	ok, failed     = "ok", "failed"
	local, members = "local", "members"
)

var outcomes = map[protocol.SwapOutcome]string{protocol.SwapDone: "done", protocol.SwapConflict: "conflict",
	protocol.SwapUnknown: "unknown", protocol.SwapNotMade: "not_made"}

func result(err error) string {
	if err != nil {
		return failed
	}
	return ok
}

// Operation is nfs.Config's Observe.
func (m *Meters) Operation(o nfs.Operation) {
	took := o.Took.Seconds()
	m.operation.WithLabelValues(o.Op.String()).Observe(took)
	if o.Refused != (volume.ID{}) {
		m.refuse(o)
		return
	}
	if o.Volume == "" {
		return
	}
	kind, ok := nfs.KindOf(o.Op)
	if !ok && o.Status == xdr.NFS4_OK {
		return
	}
	v := m.volume(o.Volume)
	v.kinds[kind].Observe(took)
	switch kind {
	case nfs.KindRead:
		v.read.Add(float64(o.Bytes))
	case nfs.KindWrite:
		v.written.Add(float64(o.Bytes))
	}
	v.failed(o)
}

// refuse counts an operation that could not enter the volume that it asked for.
func (m *Meters) refuse(o nfs.Operation) {
	m.mu.Lock()
	find := m.name
	m.mu.Unlock()
	if find == nil {
		return
	}
	if name, ok := find(o.Refused.String()); ok {
		m.volume(name).failed(o)
	}
}

// failed counts an error that is no answer to what the client asked for.
func (v *ofVolume) failed(o nfs.Operation) {
	if e := errorOf(o); e != "" {
		v.errors[e].Inc()
	}
}

var errorLabels = [...]string{"io", "no_space", "stale", "refused", "server", "no_home", "grace", "busy"}

// errorOf returns the label of an operation whose status is no answer to what the client asked for,
// else "".
func errorOf(o nfs.Operation) string {
	switch o.Status {
	case xdr.NFS4ERR_IO:
		return "io"
	case xdr.NFS4ERR_NOSPC, xdr.NFS4ERR_DQUOT:
		return "no_space"
	case xdr.NFS4ERR_STALE, xdr.NFS4ERR_FHEXPIRED:
		return "stale"
	case xdr.NFS4ERR_ROFS:
		return "refused"
	case xdr.NFS4ERR_SERVERFAULT:
		return "server"
	case xdr.NFS4ERR_GRACE:
		return "grace"
	case xdr.NFS4ERR_DELAY:
		if o.Busy {
			return "busy"
		}
		return "no_home"
	}
	return ""
}

// volume returns a volume's metrics.
func (m *Meters) volume(name string) *ofVolume {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = m.label(name)
	v := m.byName[name]
	if v == nil {
		v = &ofVolume{read: m.read.WithLabelValues(name), written: m.written.WithLabelValues(name), errors: m.noErrors(name)}
		for k := range nfs.Kinds {
			v.kinds[k] = m.volumeOperation.WithLabelValues(name, k.String())
		}
		m.byName[name] = v
	}
	return v
}

// noErrors makes the counters of a volume's errors. At 0 they are there before the first error, or
// nobody would see that one as an increase.
func (m *Meters) noErrors(name string) map[string]prometheus.Counter {
	out := map[string]prometheus.Counter{}
	for _, e := range errorLabels {
		out[e] = m.errors.WithLabelValues(name, e)
	}
	return out
}

// label returns the label of a volume (metrics-3). The caller holds mu.
func (m *Meters) label(name string) string {
	if !m.known[name] {
		if len(m.known) >= m.most {
			return metrics.OtherVolumes
		}
		m.known[name] = true
	}
	return name
}

// Committed implements replica.Meter.
func (m *Meters) Committed(uuid string, onDisk, all time.Duration) {
	m.mu.Lock()
	find := m.name
	m.mu.Unlock()
	if find != nil {
		if name, ok := find(uuid); ok {
			m.mu.Lock() // or a volume that is gone would get it back
			m.commit.WithLabelValues(m.label(name)).Observe(all.Seconds())
			m.mu.Unlock()
		}
	}
	m.commitPart.WithLabelValues(local).Observe(onDisk.Seconds())
	m.commitPart.WithLabelValues(members).Observe((all - onDisk).Seconds())
}

// Role implements replica.Meter.
func (m *Meters) Role(_ string, r protocol.Role) { m.roles.WithLabelValues(r.String()).Inc() }

// Swapped implements replica.Meter.
func (m *Meters) Swapped(o protocol.SwapOutcome) { m.swaps.WithLabelValues(outcomes[o]).Inc() }

// Uploaded implements replica.Meter.
func (m *Meters) Uploaded(bytes uint64, err error) {
	what := result(err)
	if errors.Is(err, replica.ErrDamaged) {
		what = "damaged"
	}
	m.uploads.WithLabelValues(what).Inc()
	if err == nil {
		m.uploaded.WithLabelValues().Add(float64(bytes))
	}
}

// Scrubbed is scrub.Config's Tell.
func (m *Meters) Scrubbed(result string) { m.scrubbed.WithLabelValues(result).Inc() }

// Synced is log.Config's.
func (m *Meters) Synced(took time.Duration) { m.logSync.WithLabelValues().Observe(took.Seconds()) }

// Forwarded is routing.Config's.
func (m *Meters) Forwarded(took time.Duration, err error) {
	m.forwarded.WithLabelValues(result(err)).Observe(took.Seconds())
}

// Registry is etcd.Config's Observe.
func (m *Meters) Registry(call string) (ended func(error)) {
	began := m.now()
	return func(err error) {
		m.registry.WithLabelValues(call, result(err)).Observe(m.now().Sub(began).Seconds())
	}
}
