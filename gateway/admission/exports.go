// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"net/netip"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/users"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/identity"
	"github.com/weir-storage/weir/gateway/nfs"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/volume"
)

// Exports implements nfs.Exports with the admissions in the view.
type Exports struct {
	View    *view.View
	Routers *routing.Routers
}

// Exports implements nfs.Exports.
func (x Exports) Exports(client netip.Addr) (out []nfs.Export) {
	for _, u := range x.View.Uses(client) {
		if v := x.Routers.Get(u.Record.UUID); v != nil && !u.Record.Deleted && !v.Filling() {
			out = append(out, export(u))
		}
	}
	return out
}

// Named implements nfs.Exports.
func (x Exports) Named(name string) error {
	v := x.View.Named(name)
	switch {
	case v == nil && !x.View.Synced():
		return nfs.ErrNoVolume
	case v == nil || v.Record == nil || v.Record.Deleted:
		return nfs.ErrDeleted
	}
	if r := x.Routers.Get(v.Record.UUID); r == nil || r.Filling() {
		return nfs.ErrNoVolume
	}
	return nfs.ErrNotAdmitted
}

// Unsettled implements nfs.Exports.
func (x Exports) Unsettled(client netip.Addr) bool {
	if !x.View.Synced() {
		return true
	}
	for _, u := range x.View.Uses(client) {
		if v := x.Routers.Get(u.Record.UUID); !u.Record.Deleted && (v == nil || v.Filling()) {
			return true
		}
	}
	return false
}

// Open implements nfs.Exports.
func (x Exports) Open(client netip.Addr, id volume.ID) (volume.Volume, nfs.Export, error) {
	uuid := id.String()
	u := x.View.Use(uuid, client)
	switch {
	case u.Record == nil && !u.Synced:
		return nil, nfs.Export{}, nfs.ErrNoVolume
	case u.Record == nil, u.Record.Deleted:
		return nil, nfs.Export{}, nfs.ErrDeleted
	case !u.Admitted:
		return nil, nfs.Export{}, nfs.ErrNotAdmitted
	}
	v := x.Routers.Get(uuid)
	if v == nil || v.Filling() {
		return nil, nfs.Export{}, nfs.ErrNoVolume
	}
	return v, export(u), nil
}

// export is a use as clients see it.
func export(u view.Use) nfs.Export {
	return nfs.Export{Name: u.Record.Name, ID: volumeID(u.Record.UUID), ReadOnly: u.Access != federation.ReadWrite,
		IDs: identity.New(u.Clients), Privileged: u.Clients.Ports == users.PortsPrivileged,
		Certified: u.Clients.Certificates == users.CertificatesRequired}
}
