// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/encryption"
	"github.com/weir-storage/weir/federation/keyring"
)

// volumes are all volumes, with what is counted over them. View.mu guards it.
type volumes struct {
	all    map[string]*Volume
	byName map[string]string          // UUID by name
	loads  map[string]load            // by site, or StoreLoad
	claims map[string]map[string]bool // UUIDs by namespace/name of this site's objects
	reigns map[string]reign           // of volumes for which somebody asked
	purges map[string]federation.Purge
	made   map[string]map[string]bool // by UUID, volumes that are being made of the volume
	// elsewhere are volumes that are not shown here; they count in loads.
	elsewhere map[string]federation.Elsewhere
}

// load is what volumes take of a site.
type load struct {
	promised federation.Bytes
	copies   int32
}

// reign is a context that ends with a volume's epoch.
type reign struct {
	over context.Context
	end  context.CancelFunc
}

func newVolumes() volumes {
	return volumes{all: map[string]*Volume{}, byName: map[string]string{}, loads: map[string]load{},
		claims: map[string]map[string]bool{}, reigns: map[string]reign{}, purges: map[string]federation.Purge{},
		made:      map[string]map[string]bool{},
		elsewhere: map[string]federation.Elsewhere{}}
}

// names calls f with every record that is kept of volumes.
func (vs *volumes) names(f func(federation.Kind, string)) {
	for uuid, v := range vs.all {
		if v.Record != nil || v.Problem != nil {
			f(federation.KindVolume, uuid)
		}
		if v.Control != nil {
			f(federation.KindControl, uuid)
		}
		if v.wrapped != nil {
			f(federation.KindKeyring, uuid)
		}
		for g := range v.Observed {
			f(federation.KindObserved, uuid+"/"+g)
		}
		for c := range v.Claims {
			f(federation.KindClaim, uuid+"/"+c)
		}
	}
	for uuid := range vs.purges {
		f(federation.KindPurged, uuid)
	}
	for uuid := range vs.elsewhere {
		f(federation.KindVolume, uuid)
	}
}

// Purges returns the volumes that were purged, by UUID.
func (v *View) Purges() (out []federation.Purge) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, uuid := range slices.Sorted(maps.Keys(v.volumes.purges)) {
		out = append(out, v.volumes.purges[uuid])
	}
	return out
}

// Purged returns what is known of a volume's purge; false: it was not purged, as far as is known.
func (v *View) Purged(uuid string) (federation.Purge, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	p, ok := v.volumes.purges[uuid]
	return p, ok
}

// leftAt returns what volumes that were purged still may take of a site, whose gateways have not
// deleted all yet. v.mu is held.
func (v *View) leftAt(site string) (promised federation.Bytes, copies int32) {
	for _, p := range v.volumes.purges {
		if slices.Contains(p.Sites, site) && slices.ContainsFunc(v.sites.all[site].Gateways,
			func(g federation.Gateway) bool { return slices.Contains(p.Pending, g.Name) }) {
			promised += p.Size
			copies++
		}
	}
	return promised, copies
}

// apply takes in a record of a volume, and returns the volume before and after it. listing: the
// event is part of a new watch's list.
func (vs *volumes) apply(e federation.Event, site string, listing bool) (before, after *Volume) {
	uuid, rest, _ := strings.Cut(e.Name, "/")
	before = vs.all[uuid]
	switch {
	case e.Kind == federation.KindVolume:
		vs.hide(uuid, e.Elsewhere)
		if before == nil || !before.noted || listing || e.Revision >= before.Revision {
			vs.set(uuid, e.Volume, e.Revision, e.Err, false)
		}
	case e.Err != nil: // view-2
	default:
		next := Volume{UUID: uuid}
		if before != nil {
			next = *before
		}
		switch e.Kind {
		case federation.KindControl:
			vs.control(&next, e.Control)
		case federation.KindObserved:
			next.Observed = with(next.Observed, rest, e.Observed, e.Observed != nil)
		case federation.KindClaim:
			vs.claim(uuid, rest, site, e.Deleted)
			var c federation.Claim
			if e.Claim != nil {
				c = *e.Claim
			}
			next.Claims = with(next.Claims, rest, c, e.Claim != nil)
		case federation.KindKeyring:
			next.wrapped, next.newest, next.keys, next.key = wrappedFor(e.Keyring), nil, 0, encryption.Newest{}
			if e.Keyring != nil {
				next.newest, next.keys, next.key = e.Keyring.Newest(), len(e.Keyring.Later)+1, keyring.Newest(*e.Keyring, time.Time{})
			}
		}
		vs.put(&next)
	}
	return before, vs.all[uuid]
}

// with returns a copy of m that has key with that value, or lacks it.
func with[T any](m map[string]T, key string, value T, there bool) map[string]T {
	out := make(map[string]T, len(m)+1)
	maps.Copy(out, m)
	delete(out, key)
	if there {
		out[key] = value
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// set replaces a volume's record. r is nil for a deletion, and with problem for a record that
// cannot be read.
func (vs *volumes) set(uuid string, r *federation.Volume, rev federation.Revision, problem error, noted bool) {
	next := Volume{UUID: uuid}
	if old := vs.all[uuid]; old != nil {
		next = *old
	}
	next.Revision, next.Problem, next.noted = rev, problem, noted
	if problem == nil {
		if next.Record != nil {
			vs.count(takes(next.Record), next.Record.Spec.Size, -1)
			if vs.byName[next.Record.Name] == uuid { // a volume made since may have the name
				delete(vs.byName, next.Record.Name)
			}
			vs.madeOf(next.Record, false)
		}
		if next.Record = r; r != nil {
			vs.madeOf(r, true)
			vs.count(takes(r), r.Spec.Size, 1)
			vs.byName[r.Name] = uuid
		}
	}
	vs.put(&next)
}

// put keeps a volume, or drops it when nothing is known of it any more.
func (vs *volumes) put(v *Volume) {
	if v.Record == nil && v.Problem == nil && v.Control == nil && len(v.Observed) == 0 && len(v.Claims) == 0 && v.wrapped == nil {
		delete(vs.all, v.UUID)
		return
	}
	vs.all[v.UUID] = v
}

// StoreLoad is what Promised calls the room of an agreement.
func StoreLoad(agreement string) string { return "store/" + agreement }

// takes are the sites and lent stores that a volume takes room of.
func takes(r *federation.Volume) []string {
	out := slices.Clone(r.Sites)
	for _, id := range slices.Concat(r.Stores, r.Agreed) {
		out = append(out, StoreLoad(id))
	}
	return out
}

// count adds a volume to the loads of its sites, or takes it away.
func (vs *volumes) count(sites []string, size federation.Bytes, sign int32) {
	for _, s := range sites {
		l := vs.loads[s]
		l.promised += size * federation.Bytes(sign)
		if l.copies += sign; l.copies == 0 {
			delete(vs.loads, s)
		} else {
			vs.loads[s] = l
		}
	}
}

// hide notes what is shown of a volume that is not shown here; nil: it is, or there is none.
func (vs *volumes) hide(uuid string, is *federation.Elsewhere) {
	if was, ok := vs.elsewhere[uuid]; ok {
		vs.count(was.Sites, was.Size, -1)
		delete(vs.elsewhere, uuid)
	}
	if is != nil {
		vs.count(is.Sites, is.Size, 1)
		vs.elsewhere[uuid] = *is
	}
}

// control sets a control record without its history, which may be long and nobody here asks for.
func (vs *volumes) control(next *Volume, c *federation.Control) {
	old := next.Control
	next.Control = nil
	if c != nil {
		short := *c
		short.History, short.Trail = nil, nil
		next.Control = &short
	}
	if r, asked := vs.reigns[next.UUID]; asked && (c == nil || old == nil || old.Epoch != c.Epoch) {
		r.end()
		delete(vs.reigns, next.UUID)
	}
}

// reign returns the context of a volume's present epoch. Most volumes never need one.
func (vs *volumes) reign(uuid string) context.Context {
	r, ok := vs.reigns[uuid]
	if !ok {
		r.over, r.end = context.WithCancel(context.Background())
		vs.reigns[uuid] = r
	}
	return r.over
}

// claim keeps the index of this site's claims; name is "site/namespace/name".
func (vs *volumes) claim(uuid, name, site string, deleted bool) {
	at, claim, _ := strings.Cut(name, "/")
	switch {
	case at != site:
	case !deleted && vs.claims[claim] == nil:
		vs.claims[claim] = map[string]bool{uuid: true}
	case !deleted:
		vs.claims[claim][uuid] = true
	default:
		delete(vs.claims[claim], uuid)
		if len(vs.claims[claim]) == 0 {
			delete(vs.claims, claim)
		}
	}
}

// wrappedFor returns the sites that have keys in the keyring, and which of them have all; nil:
// there is no keyring.
func wrappedFor(k *federation.Keyring) map[string]bool {
	if k == nil {
		return nil
	}
	out := make(map[string]bool, len(k.Wrapped))
	for s, w := range k.Wrapped {
		if len(w) > 0 {
			out[s] = true
		}
	}
	for _, l := range k.Later {
		for s := range out {
			out[s] = out[s] && len(l.Wrapped[s]) > 0
		}
	}
	return out
}
