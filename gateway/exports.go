// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/netip"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/nfs"
	"github.com/weir-storage/weir/volume"
)

// exports says which client may use which volume, from the admissions in the mirror.
type exports struct{ g *Gateway }

// Exports implements nfs.Exports.
func (x exports) Exports(client netip.Addr) []nfs.Export {
	m := x.g.mirror
	type admitted struct {
		volume   federation.Volume
		readOnly bool
	}
	var all []admitted
	m.mu.Lock()
	for key := range m.admissions.clients {
		if key.client != client {
			continue
		}
		access, ok := m.admissions.of(key.volume, client)
		if v, known := m.volumes[key.volume]; ok && known && !v.Deleted {
			all = append(all, admitted{v, access == federation.ReadOnly})
		}
	}
	m.mu.Unlock()
	x.g.mu.Lock()
	defer x.g.mu.Unlock()
	var out []nfs.Export
	for _, a := range all {
		if s := x.g.volumes[a.volume.UUID]; s != nil {
			out = append(out, nfs.Export{Name: a.volume.Name, ID: s.router.id, ReadOnly: a.readOnly})
		}
	}
	return out
}

// Open implements nfs.Exports.
func (x exports) Open(client netip.Addr, id volume.ID) (volume.Volume, nfs.Export, error) {
	m := x.g.mirror
	uuid := id.String()
	m.mu.Lock()
	v, known := m.volumes[uuid]
	access, admitted := m.admissions.of(uuid, client)
	heard := m.synced
	m.mu.Unlock()
	switch {
	case !known && !heard:
		return nil, nfs.Export{}, nfs.ErrNoVolume
	case !known, v.Deleted:
		return nil, nfs.Export{}, nfs.ErrDeleted
	}
	if !admitted {
		return nil, nfs.Export{}, nfs.ErrNotAdmitted
	}
	x.g.mu.Lock()
	s := x.g.volumes[uuid]
	x.g.mu.Unlock()
	if s == nil {
		return nil, nfs.Export{}, nfs.ErrNoVolume
	}
	return s.router, nfs.Export{Name: v.Name, ID: id, ReadOnly: access == federation.ReadOnly}, nil
}

// clock is the NFS server's.
type clock struct{ now func() time.Time }

// Now implements nfs.Clock.
func (c clock) Now() time.Time { return c.now() }

// After implements nfs.Clock.
func (clock) After(d time.Duration) <-chan time.Time { return time.After(d) }
