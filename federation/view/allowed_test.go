// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
)

// What a site's clients may do is no more than the volume's owner allows there (view-5).
func TestAllowed(t *testing.T) {
	const owner, other = "A", "B"
	site := func(name, organization string) federation.Event {
		e := siteEvent(name)
		e.Site.Organization = organization
		return e
	}
	record := func(grants ...federation.Grant) federation.Event {
		e := volumeEvent("a", 1, "gro")
		e.Volume.Owner, e.Volume.Grants = owner, grants
		return e
	}
	grant := func(site string, a federation.Access) federation.Grant {
		return federation.Grant{Site: site, Namespace: "lab", Access: a}
	}
	person := func(a federation.Access) federation.Event {
		e := admissionEvent("ams", "a", "10.0.0.1", "")
		e.Admission.Access = a
		return e
	}
	node := []federation.Event{admissionEvent("ams", "a", "10.0.0.1", "n"), attachmentEvent("a", "n", 2, federation.ReadWrite)}
	const ro, rw = federation.ReadOnly, federation.ReadWrite
	for _, c := range []struct {
		name    string
		site    federation.Event
		record  federation.Event
		also    []federation.Event
		allowed federation.Access
		client  federation.Access // "": none
		uses    bool
	}{
		{"the owner's own site", site("ams", owner), record(), node, rw, rw, true},
		{"another's site", site("ams", other), record(), node, "", "", false},
		{"granted to read", site("ams", other), record(grant("ams", ro)), node, ro, ro, true},
		{"granted to write", site("ams", other), record(grant("ams", ro), grant("ams", rw)), node, rw, rw, true},
		{"granted to another", site("ams", other), record(grant("utr", rw)), node, "", "", false},
		{"granted, and nobody there", site("ams", other), record(grant("ams", rw)), nil, rw, "", false},
		{"a person of the owner admits to read", site("ams", other), record(), []federation.Event{person(ro)}, ro, ro, true},
		{"a person of the owner admits to write", site("ams", other), record(), []federation.Event{person(rw)}, rw, rw, true},
		{"a site that nobody knows", site("utr", owner), record(), node, "", "", false},
	} {
		v := filled(t, append([]federation.Event{c.site, c.record, synced(3)}, c.also...)...)
		u := v.Use("a", client)
		equal(t, c.name, []any{v.Allowed("a", "ams"), u.Access, u.Admitted, v.MayUse("a", "ams"), v.Forbidden("a", "ams")},
			[]any{c.allowed, c.client, c.client != "", c.uses, c.allowed == ""})
		equal(t, c.name+": of all", len(v.Uses(client)), map[bool]int{true: 1}[c.client != ""])
	}
	// An admission that is changed counts as it is now, and one that is deleted not at all.
	v := filled(t, site("ams", other), record(), person(rw), person(ro), synced(3))
	equal(t, "changed", v.Allowed("a", "ams"), ro)
	watch(t, v, site("ams", other), record(), synced(4))
	equal(t, "deleted", []any{v.Allowed("a", "ams"), v.MayUse("a", "ams"), v.MayUse("a", "gro")}, []any{federation.Access(""), false, true})
}

// TestMadeOfAnother: a site that is to have a copy of a volume may read the one that it is made of,
// while it is being made, and if both have one owner.
func TestMadeOfAnother(t *testing.T) {
	parent, child := volumeEvent("a", 1, "gro"), volumeEvent("b", 1, "ams", "utr")
	child.Volume.Blind = []string{"utr"}
	child.Volume.Source = &snapshots.Source{Volume: "a", Snapshot: "one", Snap: 1, Time: time.Unix(1, 0)}
	v := filled(t, parent, child, synced(3))
	use := func() []bool {
		return []bool{v.MayRead("a", "ams"), v.MayRead("a", "utr"), v.MayRead("a", "lei"), v.MayRead("b", "gro"), v.MayUse("a", "ams")}
	}
	equal(t, "while it is being made", use(), []bool{true, false, false, false, false})
	equal(t, "of it are made", []any{len(v.Making("a")), v.Making("a")[0].UUID, len(v.Making("b"))}, []any{1, "b", 0})
	again := func(change func(*federation.Volume)) {
		e := volumeEvent("b", 1, "ams", "utr")
		*e.Volume = *child.Volume
		source := *child.Volume.Source
		e.Volume.Source = &source
		change(e.Volume)
		watch(t, v, parent, e, synced(4))
	}
	for what, change := range map[string]func(*federation.Volume){
		"when it has all":   func(n *federation.Volume) { n.Source.Done = true },
		"when it is gone":   func(n *federation.Volume) { n.Deleted = true },
		"by somebody else":  func(n *federation.Volume) { n.Owner += "x" },
		"at another site":   func(n *federation.Volume) { n.OwnerSite, n.OwnerCluster = "ams", "c" },
		"of another volume": func(n *federation.Volume) { n.Source.Volume = "c" },
	} {
		again(change)
		equal(t, what, use(), []bool{false, false, false, false, false})
		equal(t, what+": none is made", len(v.Making("a")), 0)
	}
	again(func(*federation.Volume) {})
	equal(t, "again", use(), []bool{true, false, false, false, false})
}
