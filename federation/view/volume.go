// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/encryption"
)

// Volume is what the registry has about one volume. It is never modified.
type Volume struct {
	UUID string
	// Record is the desired state; nil: there is none that could be read.
	Record *federation.Volume
	// Revision is Record's, or with Problem that of the record that cannot be read.
	Revision federation.Revision
	// Problem says why the present record cannot be read. Record is then the last readable one.
	Problem error
	// Control has no history here. nil: no gateway ever led the volume.
	Control *federation.Control
	// Observed is by gateway.
	Observed map[string]*federation.Observed
	// Claims are by "site/namespace/name".
	Claims map[string]federation.Claim

	wrapped map[string]bool   // sites for which data keys are wrapped: true, all; nil: there is no keyring
	newest  map[string][]byte // wraps of the newest data key, by site
	keys    int               // how many data keys there are
	key     encryption.Newest // the newest data key, with Since only if it is not the first
	noted   bool              // Record comes from Note, and the watch has not sent it yet
}

// Name is the volume's name in the federation; empty without a Record.
func (v *Volume) Name() string {
	if v.Record == nil {
		return ""
	}
	return v.Record.Name
}

// IsAt reports whether a site is to have a copy, or has a member.
func (v *Volume) IsAt(site string) bool {
	return v.Record != nil && slices.Contains(v.Record.Sites, site) ||
		v.Control != nil && slices.ContainsFunc(v.Control.Members, func(m federation.Member) bool { return m.Site == site })
}

// Here returns a volume's desired state as it is in force at this site: what an import here says of
// the cache comes before what the owner says. Of several imports that say something, the first by
// namespace and name counts. What another organization's volume reserves counts as far as its room
// goes here.
func (v *View) Here(r federation.Volume) federation.Volume {
	r.Spec.Cache.Reserve = v.kept(&r, v.now())
	if e := v.Volume(r.UUID); e != nil {
		for _, c := range e.ClaimsOf(v.site) {
			if c.Cache != nil {
				r.Spec.Cache = r.Spec.Cache.With(c.Cache, v.site)
				break
			}
		}
	}
	return r
}

// ClaimsOf returns the claims of one site, or of all sites for "", by site, namespace and name.
func (v *Volume) ClaimsOf(site string) (out []federation.Claim) {
	for _, k := range slices.Sorted(maps.Keys(v.Claims)) {
		if c := v.Claims[k]; site == "" || c.Site == site {
			out = append(out, c)
		}
	}
	return out
}

// ObservedByHome is what the present home reported; nil: nothing yet.
func (v *Volume) ObservedByHome() *federation.Observed {
	if v.Control == nil {
		return nil
	}
	return v.Observed[v.Control.Home.Gateway]
}

// Volume returns what is known of a volume; nil: nothing.
func (v *View) Volume(uuid string) *Volume {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.volumes.all[uuid]
}

// Record returns a volume's desired state; false: there is none that could be read.
func (v *View) Record(uuid string) (federation.Volume, bool) {
	if e := v.Volume(uuid); e != nil && e.Record != nil {
		return *e.Record, true
	}
	return federation.Volume{}, false
}

// Named finds a volume with a Record by its name or UUID; nil: there is none.
func (v *View) Named(name string) *Volume {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if uuid, ok := v.volumes.byName[name]; ok {
		name = uuid
	}
	if e := v.volumes.all[name]; e != nil && e.Record != nil {
		return e
	}
	return nil
}

// Volumes returns all volumes of which anything is known, by UUID, and whether the view is synced.
func (v *View) Volumes() (_ []*Volume, synced bool) {
	v.mu.RLock()
	out := slices.Collect(maps.Values(v.volumes.all))
	synced = v.synced
	v.mu.RUnlock()
	slices.SortFunc(out, func(a, b *Volume) int { return strings.Compare(a.UUID, b.UUID) })
	return out, synced
}

// Home returns a volume's home gateway and epoch; "" and 0: no gateway ever led it.
func (v *View) Home(uuid string) (gateway string, epoch uint64) {
	if e := v.Volume(uuid); e != nil && e.Control != nil {
		return e.Control.Home.Gateway, e.Control.Epoch
	}
	return "", 0
}

// CountsOn reports whether a log on a gateway's pool is a member of the volume, whichever it is.
func (v *View) CountsOn(uuid string, pool federation.Member) bool {
	e := v.Volume(uuid)
	return e != nil && e.Control != nil && e.Control.CountsOn(pool)
}

// Reign is Home with a context that ends when the view hears of another epoch, or of no control
// record any more. Without a home the context is the background's.
func (v *View) Reign(uuid string) (gateway string, epoch uint64, over context.Context) {
	v.mu.RLock()
	e, r := v.volumes.all[uuid], v.volumes.reigns[uuid]
	v.mu.RUnlock()
	if r.over != nil && e != nil && e.Control != nil {
		return e.Control.Home.Gateway, e.Control.Epoch, r.over
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	e = v.volumes.all[uuid]
	if e == nil || e.Control == nil {
		return "", 0, context.Background()
	}
	return e.Control.Home.Gateway, e.Control.Epoch, v.volumes.reign(uuid)
}

// Keyring returns the sites for which a volume's data keys are wrapped, and whether all are; false:
// there is no keyring.
func (v *View) Keyring(uuid string) (sites map[string]bool, known bool) {
	e := v.Volume(uuid)
	if e == nil || e.wrapped == nil {
		return nil, false
	}
	return e.wrapped, true
}

// Keyless returns the public keys of those sites that have one, and for which a volume's data key
// is not wrapped: sites that are to have a copy with the key, and those whose clients use the
// volume. nil: none, or there is no keyring.
func (v *View) Keyless(of federation.Volume) (out map[string][]byte) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	e := v.volumes.all[of.UUID]
	if e == nil || e.wrapped == nil {
		return nil
	}
	for name, s := range v.sites.all {
		// A member that is to go gets none that it does not have.
		is := hasKey(&of, name) || v.uses(e, of.UUID, name)
		if is && !of.IsBlind(name) && !e.wrapped[name] && len(s.WrapKey) > 0 {
			if out == nil {
				out = map[string][]byte{}
			}
			out[name] = s.WrapKey
		}
	}
	return out
}

// Surplus reports whether a site has a volume's newest data key, and is not to read what is written
// from now on: it is to have no copy or a blind one, has no member, and the owner allows nothing to
// it. keep has the public keys of the others that have it; nil: no other key may follow now, since
// a site would go short that needs it.
func (v *View) Surplus(of federation.Volume) (surplus bool, keep map[string][]byte) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	e := v.volumes.all[of.UUID]
	if e == nil || e.Record == nil {
		return false, nil
	}
	keep = map[string][]byte{}
	for name := range e.newest {
		s, registered := v.sites.all[name]
		switch {
		case of.IsBlind(name), !slices.Contains(of.Sites, name) && !e.IsAt(name) && v.allowed(e.Record, name) == "":
			surplus = true
		case registered && len(s.WrapKey) > 0:
			keep[name] = s.WrapKey
		}
	}
	// A copy that would be left out could not read what comes.
	needed := slices.Clone(of.Sites)
	if e.Control != nil {
		for _, m := range e.Control.Members {
			needed = append(needed, m.Site)
		}
	}
	for _, name := range needed {
		if _, had := e.wrapped[name]; keep[name] == nil && !of.IsBlind(name) && (had || slices.Contains(of.Sites, name)) {
			return false, nil
		}
	}
	return surplus, keep
}

// HasNewest reports whether a volume's newest data key is wrapped for a site.
func (v *View) HasNewest(uuid, site string) bool {
	e := v.Volume(uuid)
	return e != nil && len(e.newest[site]) > 0
}

// NewestKey returns what is known of the volume's newest data key; false: there is no keyring.
func (v *Volume) NewestKey() (is encryption.Newest, known bool) {
	is = v.key
	if v.keys == 1 && v.Record != nil {
		is.Since = v.Record.CreatedAt
	}
	return is, v.wrapped != nil
}

// Keys is how many data keys a volume has.
func (v *View) Keys(uuid string) int {
	if e := v.Volume(uuid); e != nil {
		return e.keys
	}
	return 0
}

// Note takes in a desired state that this process has just written, and its revision (view-3). It
// calls no listener and closes no channel.
func (v *View) Note(r federation.Volume, rev federation.Revision) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e := v.volumes.all[r.UUID]; e == nil || rev > e.Revision {
		v.volumes.set(r.UUID, &r, rev, nil, true)
	}
}

// Claimed returns the volumes that an object of this site's cluster has a claim on, by UUID.
func (v *View) Claimed(namespace, name string) []string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return slices.Sorted(maps.Keys(v.volumes.claims[namespace+"/"+name]))
}

// Claims returns "namespace/name" of all objects of this site's cluster with a claim, sorted.
func (v *View) Claims() []string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return slices.Sorted(maps.Keys(v.volumes.claims))
}

// Promised returns how much of a site's capacity, or of a StoreLoad, volumes may take, and how many
// have a copy there.
// A deleted volume counts until it is purged and its data is gone from the site's gateways.
func (v *View) Promised(site string) (federation.Bytes, int32) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	l := v.volumes.loads[site]
	promised, copies := v.leftAt(site)
	return l.promised + promised, l.copies + copies
}

// MayHave reports whether a gateway may have something of a volume: by the volume's record, or as a
// member, or because it is its owner's.
func (v *View) MayHave(is federation.Volume, g federation.Member) bool {
	_, site, _ := v.Gateway(g.Gateway)
	e := v.Volume(is.UUID)
	return site.Organization == is.Owner || slices.Contains(slices.Concat(is.Sites, is.Former), g.Site) ||
		slices.ContainsFunc(is.Grants, func(x federation.Grant) bool { return x.Site == g.Site }) || v.MayRead(is.UUID, g.Site) ||
		e != nil && e.Control != nil &&
			slices.ContainsFunc(e.Control.Members, func(x federation.Member) bool { return x.Gateway == g.Gateway })
}
