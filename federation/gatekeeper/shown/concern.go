// SPDX-License-Identifier: Apache-2.0

package shown

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
)

// apply takes in one change. What cannot be read changes nothing. x.mu is held.
func (x *Index) apply(key string, value []byte, deleted bool, at int64) {
	kind, name, _ := strings.Cut(key, "/")
	if !x.counts(key, value, deleted) {
		x.forged[key] = true
		return
	}
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
	case federation.KindVolume, federation.KindControl, federation.KindPurged:
		uuid := name
		v, known := x.volumes[uuid]
		if !known {
			v = new(volume)
		}
		before := x.concerned(v)
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
		if !known { // nothing of it was hidden
			return
		}
		after := x.concerned(v)
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
}

// counts reports whether a change counts of what an index keeps, and then keeps it. x.mu is held.
func (x *Index) counts(key string, value []byte, deleted bool) bool {
	switch signed.KindOf(key) {
	case federation.KindSite, federation.KindVolume, federation.KindControl, federation.KindKeyring, federation.KindPurged:
	default:
		return true
	}
	is := x.values[key]
	if deleted && signed.Stays(key) && is != nil && x.values[signed.PurgeOf(key)] == nil && !x.seal.Since().IsZero() ||
		!deleted && x.seal.Check(key, value, signed.Known{Value: is, First: x.first}, x.look) != nil {
		return false
	}
	delete(x.forged, key)
	if x.values[key] = value; deleted {
		delete(x.values, key)
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
	case kind == string(kindName) && x.names[name] != "":
		known = []byte(x.names[name])
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
		if v.purged = !deleted; !deleted && len(v.owners) == 0 && record(value, &is) {
			v.named = slices.Clone(is.Sites)
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
	delete(out, "")
	return out
}

// concerns reports whether a volume concerns an organization. x.mu is held.
func (x *Index) concerns(v *volume, organization string) bool {
	if v == nil || organization == "" {
		return false
	}
	own := func(site string) bool { return x.sites[site].organization == organization }
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
	if after.era != x.era || after.at < x.since || after.at < x.floors[organization] {
		return true
	}
	all := x.shifts[organization]
	i, _ := slices.BinarySearch(all, after.at+1)
	return i < len(all) && all[i] <= upTo
}
