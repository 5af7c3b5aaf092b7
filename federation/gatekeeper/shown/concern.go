// SPDX-License-Identifier: Apache-2.0

package shown

import (
	"encoding/json"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/signed"
)

// apply takes in one change. What cannot be read changes nothing. x.mu is held.
func (x *Index) apply(key string, value []byte, deleted bool, at int64) {
	defer func() {
		if p := recover(); p != nil { // it ends one record, and not the gatekeeper
			x.log.Error("a mistake in the gatekeeper's index: please report it", "record", key, "panic", p, "stack", string(debug.Stack()))
			x.forged[key] = change{value, deleted}
		}
	}()
	if !x.counts(key, value, deleted) {
		x.forged[key] = change{value, deleted}
		return
	}
	_, was := x.forged[key]
	delete(x.forged, key)
	x.keep(key, value, deleted, at, was)
	if was {
		x.turn(at) // it was shown to all
	}
	switch signed.KindOf(key) {
	case federation.KindSite, federation.KindVolume, federation.KindPurged, federation.KindCharter: // others are judged by it
		for k, c := range maps.Clone(x.forged) {
			if x.counts(k, c.value, c.deleted) {
				delete(x.forged, k)
				x.keep(k, c.value, c.deleted, at, true)
				x.turn(at)
			}
		}
	}
}

// keep takes in what counts. before: something else was shown of the key. x.mu is held.
func (x *Index) keep(key string, value []byte, deleted bool, at int64, before bool) {
	kind, name, _ := strings.Cut(key, "/")
	switch federation.Kind(kind) {
	case federation.KindSite:
		x.site(name, value, deleted, at)
	case kindNotice:
		some := len(x.notices) > 0
		if x.notices[name] = true; deleted {
			delete(x.notices, name)
		}
		if some != (len(x.notices) > 0) {
			x.turn(at)
		}
	case federation.KindAdmission:
		x.admission(key, value, deleted, at)
	case federation.KindPaper:
		if p := parties(value); !deleted && len(p) > 0 {
			x.papers[key] = p
		}
	case federation.KindVolume, federation.KindControl, federation.KindPurged:
		uuid := name
		v, known := x.volumes[uuid]
		if !known {
			v = new(volume)
		}
		were := x.concerned(v)
		v.apply(federation.Kind(kind), value, deleted)
		if v.gone() {
			delete(x.volumes, uuid)
			if x.names[v.name] == uuid {
				delete(x.names, v.name)
			}
			return
		}
		x.volumes[uuid] = v
		if v.name != "" && v.there {
			x.names[v.name] = uuid
		}
		if known || before { // else nothing of it was hidden
			x.changed(were, x.concerned(v), at)
		}
	}
}

// changed notes whom a volume begins or ends to concern. x.mu is held.
func (x *Index) changed(before, after map[string]bool, at int64) {
	for o := range before {
		if !after[o] {
			x.shift(o, at)
		}
	}
	for o := range after {
		if !before[o] {
			x.shift(o, at)
		}
	}
}

// admission takes in who may use a volume. One that a person of the owner wrote, of a client that
// is no node, is enough for its site to use the volume. x.mu is held.
func (x *Index) admission(key string, value []byte, deleted bool, at int64) {
	parts := strings.SplitN(key, "/", 4) // admission/SITE/VOLUME/CLIENT
	if len(parts) != 4 {
		return
	}
	var is federation.Admission
	v := x.volumes[parts[2]]
	if !deleted && !record(value, &is) || v == nil {
		return
	}
	before := x.concerned(v)
	if delete(v.clients, key); !deleted && is.Node == "" {
		if v.clients == nil {
			v.clients = map[string]string{}
		}
		v.clients[key] = parts[1]
	}
	x.changed(before, x.concerned(v), at)
}

// counts reports whether a change counts of what an index keeps, and then keeps it. x.mu is held.
func (x *Index) counts(key string, value []byte, deleted bool) bool {
	switch signed.KindOf(key) {
	case federation.KindSite, federation.KindVolume, federation.KindControl, federation.KindKeyring, federation.KindPurged:
	case federation.KindAdmission, kindNotice: // they are not kept
		var is federation.Admission
		if signed.KindOf(key) == federation.KindAdmission && record(value, &is) && is.Node != "" {
			return true // most are of nodes, and concern nobody by themselves
		}
		return deleted || x.seal.Check(key, value, signed.Known{First: true}, x.look) == nil
	default:
		return true
	}
	is := x.values[key]
	if deleted && signed.Stays(key) && is != nil && x.values[signed.PurgeOf(key)] == nil && !x.seal.Since().IsZero() ||
		!deleted && x.seal.Check(key, value, signed.Known{Value: is, Grave: x.graves[key], First: x.first}, x.look) != nil {
		return false
	}
	if x.values[key] = value; deleted {
		if delete(x.values, key); signed.KindOf(key) == federation.KindSite { // its name stays with its organization
			x.graves[key] = is
		}
	}
	return true
}

// look is what counts of a key. x.mu is held.
func (x *Index) look(key string) []byte {
	kind, name, _ := strings.Cut(key, "/")
	known := x.values[key]
	switch {
	case kind == "gateway" && x.at[name] != "":
		known = []byte(x.at[name])
	case kind == string(kindName):
		if v := x.volumes[x.names[name]]; v != nil && v.there {
			known = []byte(x.names[name])
		}
	}
	return known
}

// record reads a record, without what this program does not know of it.
func record(value []byte, into any) bool {
	var e struct {
		Record json.RawMessage `json:"record"`
	}
	return json.Unmarshal(value, &e) == nil && json.Unmarshal(e.Record, into) == nil
}

// apply takes in a change of one of a volume's records. A volume that was purged concerns whom it
// did, until that is forgotten: who deletes what is left of it sees that.
func (v *volume) apply(kind federation.Kind, value []byte, deleted bool) {
	switch kind {
	case federation.KindVolume:
		v.there = !deleted
		var is federation.Volume
		var deeds struct {
			Deeds []struct {
				From string `json:"from"`
			} `json:"deeds"`
		}
		if deleted {
			v.is = federation.Elsewhere{}
		} else if record(value, &is) && json.Unmarshal(value, &deeds) == nil {
			v.is, v.name = federation.Elsewhere{Sites: is.Sites, Size: is.Spec.Size}, is.Name
			v.owners = []string{is.Owner}
			for _, d := range deeds.Deeds {
				v.owners = with(v.owners, d.From)
			}
			v.named = slices.Concat(is.Sites, is.Former)
			for _, g := range is.Grants {
				v.named = with(v.named, g.Site)
			}
		}
	case federation.KindControl:
		v.ruled = !deleted
		var is federation.Control
		if !deleted && record(value, &is) {
			v.members = nil
			for _, m := range append(is.Members, is.Home) {
				v.members = with(v.members, m.Site)
			}
		}
	case federation.KindPurged:
		var is federation.Purge
		if v.purged = !deleted; deleted || !record(value, &is) {
			return
		}
		for _, g := range is.Pending { // who left sees that it did
			v.pending = with(v.pending, g)
		}
		if len(v.owners) == 0 { // nothing else is known of it: what it was is beside its purge
			var e struct {
				Because json.RawMessage `json:"because"`
			}
			if json.Unmarshal(value, &e) == nil && e.Because != nil {
				v.apply(federation.KindVolume, e.Because, false)
				v.there = false
			}
			for _, s := range is.Sites {
				v.named = with(v.named, s)
			}
		}
	}
}

// gone reports whether nothing is left of a volume.
func (v *volume) gone() bool {
	return !v.there && !v.ruled && !v.purged
}

func with(all []string, one string) []string {
	if slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}

// concerned are the organizations that a volume concerns. x.mu is held.
func (x *Index) concerned(v *volume) map[string]bool {
	out := map[string]bool{}
	for _, o := range v.owners {
		out[o] = true
	}
	for _, sites := range [][]string{v.named, v.members} {
		for _, s := range sites {
			out[x.sites[s].organization] = true
		}
	}
	for _, s := range v.clients {
		out[x.sites[s].organization] = true
	}
	delete(out, "")
	return out
}

// concerns reports whether a volume concerns an organization. x.mu is held.
func (x *Index) concerns(v *volume, organization string) bool {
	if v == nil || organization == "" {
		return false
	}
	own := func(site string) bool { return x.sites[site].organization == organization }
	for _, s := range v.clients {
		if own(s) {
			return true
		}
	}
	return slices.Contains(v.owners, organization) || slices.ContainsFunc(v.named, own) || slices.ContainsFunc(v.members, own)
}

// site takes in a site. One that begins, or ends, may be named by volumes already. x.mu is held.
func (x *Index) site(name string, value []byte, deleted bool, at int64) {
	var is federation.Site
	if !deleted && !record(value, &is) {
		return
	}
	was := x.sites[name]
	for _, g := range was.gateways {
		delete(x.at, g)
	}
	if delete(x.sites, name); !deleted {
		next := site{organization: is.Organization}
		for _, g := range is.Gateways {
			next.gateways = append(next.gateways, g.Name)
			x.at[g.Name] = name
		}
		x.sites[name] = next
	}
	if was.organization != is.Organization {
		x.shift(was.organization, at)
		x.shift(is.Organization, at)
	}
}

// shift notes that what an organization is shown changed. x.mu is held.
func (x *Index) shift(organization string, at int64) {
	all := x.shifts[organization]
	if n := len(all); organization == "" || n > 0 && all[n-1] == at {
		return
	}
	if len(all) == mostShifts {
		x.floors[organization], all = all[0], all[1:]
	}
	x.shifts[organization] = append(all, at)
}

// shifted reports whether what an organization is shown changed after one revision, up to another,
// or since an era.
func (x *Index) shifted(organization string, after place, upTo int64) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if !x.hides || after.era != x.era {
		return after.era != x.era
	}
	if after.at < x.since || after.at < x.floors[organization] {
		return true
	}
	all := x.shifts[organization]
	i, _ := slices.BinarySearch(all, after.at+1)
	return i < len(all) && all[i] <= upTo
}

// parties are the organizations that alone are shown a paper; none: all are.
func parties(value []byte) []string {
	var is paper.Paper
	if !record(value, &is) {
		return nil
	}
	guest, host := is.Parties()
	if guest == "" && host == "" {
		return nil
	}
	return []string{guest, host}
}

// party reports whether an organization is shown a paper; a nil value is that of one that is
// deleted, or not there. x.mu is held.
func (x *Index) party(key string, value []byte, organization string) bool {
	of := parties(value)
	if value == nil {
		of = x.papers[key]
	}
	return len(of) == 0 || slices.Contains(of, organization)
}
