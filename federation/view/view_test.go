// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"sync"
	"testing"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/federation/view"
)

// told is a watcher that tells these events and ends.
type told []federation.Event

var errEnds = errors.New("the watch ends")

func (w told) Watch(_ context.Context, fn func(federation.Event) error) error {
	for _, e := range w {
		if err := fn(e); err != nil {
			return err
		}
	}
	return errEnds
}

func (told) Head(context.Context) (federation.Head, error) { return federation.Head{}, nil }

func synced(rev federation.Revision) federation.Event {
	return federation.Event{Kind: federation.KindSynced, Revision: rev}
}

func volumeEvent(uuid string, rev federation.Revision, sites ...string) federation.Event {
	return federation.Event{Kind: federation.KindVolume, Name: uuid, Revision: rev,
		Volume: &federation.Volume{UUID: uuid, Name: "ns." + uuid, Spec: federation.VolumeSpec{Size: 10}, Sites: sites}}
}

func controlEvent(uuid string, epoch uint64) federation.Event {
	m := federation.Member{Gateway: "ams-1", Site: "ams", Incarnation: "1"}
	return federation.Event{Kind: federation.KindControl, Name: uuid, Control: &federation.Control{Volume: uuid, Epoch: epoch,
		Home: m, Members: []federation.Member{m}, History: []federation.EpochStart{{Epoch: 1}}}}
}

func aliveEvent(gateway string) federation.Event {
	return federation.Event{Kind: federation.KindAlive, Name: gateway,
		Alive: &federation.Alive{Gateway: gateway, Site: "ams", Incarnation: "1"}}
}

func siteEvent(name string, gateways ...string) federation.Event {
	s := federation.Site{Name: name, WrapKey: []byte("key of " + name)}
	for _, g := range gateways {
		s.Gateways = append(s.Gateways, federation.Gateway{Name: g, Incarnation: "1"})
	}
	return federation.Event{Kind: federation.KindSite, Name: name, Site: &s}
}

func admissionEvent(site, volume, client, node string) federation.Event {
	return federation.Event{Kind: federation.KindAdmission, Name: site + "/" + volume + "/" + client,
		Admission: &federation.Admission{Volume: volume, Site: site, Client: client, Access: federation.ReadWrite, Node: node}}
}

func attachmentEvent(volume, node string, rev federation.Revision, access federation.Access) federation.Event {
	return federation.Event{Kind: federation.KindAttachment, Name: "ams/" + volume + "/" + node, Revision: rev,
		Attachment: &federation.Attachment{Volume: volume, Site: "ams", Node: node, Access: access}}
}

func claimEvent(volume, site, name string) federation.Event {
	return federation.Event{Kind: federation.KindClaim, Name: volume + "/" + site + "/ns/" + name,
		Claim: &federation.Claim{Volume: volume, Site: site, Namespace: "ns", Name: name}}
}

func observedEvent(volume, gateway string) federation.Event {
	return federation.Event{Kind: federation.KindObserved, Name: volume + "/" + gateway,
		Observed: &federation.Observed{Volume: volume, Gateway: gateway}}
}

func keyringEvent(volume string, sites ...string) federation.Event {
	k := federation.Keyring{Volume: volume, Wrapped: map[string][]byte{}}
	for _, s := range sites {
		k.Wrapped[s] = []byte("wrapped")
	}
	return federation.Event{Kind: federation.KindKeyring, Name: volume, Keyring: &k}
}

func lostEvent(site string) federation.Event {
	return federation.Event{Kind: federation.KindLost, Name: site, Lost: &federation.Lost{Site: site}}
}

// gone is the deletion of what e tells.
func gone(e federation.Event, rev federation.Revision) federation.Event {
	return federation.Event{Kind: e.Kind, Name: e.Name, Deleted: true, Revision: rev}
}

var everyKind = []federation.Kind{federation.KindControl, federation.KindVolume, federation.KindSite, federation.KindAlive,
	federation.KindAdmission, federation.KindKeyring, federation.KindObserved, federation.KindClaim, federation.KindAttachment,
	federation.KindLost}

// filled makes a view of site ams that was told events.
func filled(t *testing.T, events ...federation.Event) *view.View {
	t.Helper()
	v := view.New("ams", everyKind...)
	watch(t, v, events...)
	return v
}

func watch(t *testing.T, v *view.View, events ...federation.Event) {
	t.Helper()
	if err := v.Watch(t.Context(), told(events)); !errors.Is(err, errEnds) {
		t.Fatalf("the watch ended with %v", err)
	}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

var client = netip.MustParseAddr("10.0.0.1")

// One record of each kind, and what a view says of it.
func everything() []federation.Event {
	return []federation.Event{siteEvent("ams", "ams-1"), siteEvent("utr"), aliveEvent("ams-1"), lostEvent("utr"),
		volumeEvent("a", 1, "ams", "utr"),
		controlEvent("a", 3), keyringEvent("a", "ams"), observedEvent("a", "ams-1"), claimEvent("a", "ams", "x"),
		claimEvent("a", "utr", "y"),
		admissionEvent("ams", "a", "10.0.0.1", ""), admissionEvent("gro", "a", "10.0.0.9", ""),
		attachmentEvent("a", "n1", 5, federation.ReadOnly)}
}

func TestLookups(t *testing.T) {
	v := filled(t, append(everything(), synced(9))...)
	e := v.Volume("a")
	if e == nil || e.Record == nil || v.Named("ns.a") != e || v.Named("a") != e || !v.Synced() {
		t.Fatalf("volume a is %+v", e)
	}
	equal(t, "history", e.Control.History, []federation.EpochStart(nil))
	home, epoch := v.Home("a")
	equal(t, "home", []any{home, epoch}, []any{"ams-1", uint64(3)})
	log := federation.Member{Gateway: "ams-1", Site: "ams", Incarnation: "1"}
	equal(t, "member", v.CountsOn("a", log), true)
	log.Incarnation = "2"
	equal(t, "member on a new pool", v.CountsOn("a", log), false)
	equal(t, "observed", e.ObservedByHome().Gateway, "ams-1")
	equal(t, "claims", len(e.ClaimsOf("")), 2)
	equal(t, "claims of ams", len(e.ClaimsOf("ams")), 1)
	equal(t, "claims in this cluster", v.Claims(), []string{"ns/x"})
	equal(t, "claimed", v.Claimed("ns", "x"), []string{"a"})
	equal(t, "keyless", v.Keyless(*e.Record), map[string][]byte{"utr": []byte("key of utr")})
	sites, known := v.Keyring("a")
	equal(t, "keyring", []any{sites, known}, []any{map[string]bool{"ams": true}, true})
	promised, copies := v.Promised("utr")
	equal(t, "promised", []any{promised, copies}, []any{federation.Bytes(10), int32(1)})
	g, s, ok := v.Gateway("ams-1")
	equal(t, "gateway", []any{g.Name, s.Name, ok}, []any{"ams-1", "ams", true})
	equal(t, "members", v.Members(), []federation.Member{{Gateway: "ams-1", Site: "ams", Incarnation: "1"}})
	living, _ := v.Living()
	equal(t, "living", living, []string{"ams-1"})
	equal(t, "alive", []bool{v.IsAlive("ams-1", ""), v.IsAlive("ams-1", "1"), v.IsAlive("ams-1", "2")}, []bool{true, true, false})
	_, lost := v.Lost("utr")
	equal(t, "lost", lost, true)
	u := v.Use("a", client)
	equal(t, "use", []any{u.Admitted, u.Access, u.Record == e.Record}, []any{true, federation.ReadWrite, true})
	equal(t, "uses", v.Uses(client), []view.Use{u})
	equal(t, "may use", []bool{v.MayUse("a", "utr"), v.MayUse("a", "gro"), v.MayUse("a", "lei")}, []bool{true, true, false})
	all, ok := v.Volumes()
	equal(t, "volumes", []any{all, ok}, []any{[]*view.Volume{e}, true})
	record, ok := v.Record("a")
	equal(t, "record", []any{record.Name, ok}, []any{"ns.a", true})
}

// What a new watch does not list is forgotten when the list ends, and not before (view-1).
func TestAListIsComplete(t *testing.T) {
	v := filled(t, append(everything(), synced(9))...)
	watch(t, v) // it begins and breaks
	if v.Volume("a") == nil || !v.IsAlive("ams-1", "1") || !v.Use("a", client).Admitted {
		t.Fatal("a list that has only begun has something forgotten")
	}
	var heard []view.Change
	v.Listen(func(c view.Change) { heard = append(heard, c) })
	watch(t, v, synced(20))
	if all, _ := v.Volumes(); len(all) != 0 || len(v.Sites()) != 0 || len(v.Claims()) != 0 || v.Named("ns.a") != nil {
		t.Errorf("volumes %v and sites %v are left", all, v.Sites())
	}
	equal(t, "uses", v.Uses(client), []view.Use(nil))
	equal(t, "may use", v.MayUse("a", "gro"), false)
	equal(t, "gone", v.Gone("ams-1"), true)
	promised, copies := v.Promised("utr")
	equal(t, "promised", []any{promised, copies}, []any{federation.Bytes(0), int32(0)})
	_, lost := v.Lost("utr")
	equal(t, "lost", lost, false)
	equal(t, "changes", len(heard), len(everything())+1)
	for i, c := range heard {
		if last := i == len(heard)-1; last != (c.Kind == federation.KindSynced) || c.Deleted == last || c.Revision != 20 {
			t.Errorf("change %d is %+v", i, c)
		}
	}
}

// Only a list by a new watch forgets: a watch that lists anew tells what vanished itself.
func TestAWatchThatListsAnew(t *testing.T) {
	v := filled(t, volumeEvent("a", 1), synced(5), volumeEvent("b", 6), synced(9))
	if v.Volume("a") == nil || v.Volume("b") == nil {
		t.Error("a volume is forgotten that the watch did not tell to be deleted")
	}
}

// A record that cannot be read is unknown, and what was known before stays (view-2).
func TestUnreadableIsNotDeleted(t *testing.T) {
	events := everything()
	v := filled(t, append(events, synced(9))...)
	was := v.Volume("a")
	var unreadable []federation.Event
	for _, e := range events {
		unreadable = append(unreadable, federation.Event{Kind: e.Kind, Name: e.Name, Revision: 30, Err: federation.ErrVersion})
	}
	watch(t, v, append(unreadable, synced(31))...)
	is := v.Volume("a")
	if is == nil || is.Record != was.Record || !errors.Is(is.Problem, federation.ErrVersion) || is.Control != was.Control {
		t.Errorf("volume a is %+v", is)
	}
	equal(t, "alive", []any{v.IsAlive("ams-1", "1"), v.Gone("ams-1")}, []any{true, false})
	equal(t, "sites", len(v.Sites()), 2)
	equal(t, "use", v.Use("a", client).Admitted, true)
	promised, copies := v.Promised("ams")
	equal(t, "promised", []any{promised, copies}, []any{federation.Bytes(10), int32(1)})
	watch(t, v, gone(volumeEvent("a", 0), 40))
	if e := v.Volume("a"); e == nil || e.Record != nil || e.Problem != nil {
		t.Errorf("after its deletion volume a is %+v", e)
	}
}

// A write of this process counts at once, and an older event does not undo it (view-3).
func TestNote(t *testing.T) {
	v := filled(t, volumeEvent("a", 1, "ams"), synced(1))
	changed := v.Changed()
	v.Note(*volumeEvent("a", 5, "ams", "utr").Volume, 5)
	select {
	case <-changed:
		t.Error("a note has closed the channel")
	default:
	}
	has := func(when string, copies int32) {
		t.Helper()
		_, got := v.Promised("utr")
		equal(t, when, got, copies)
	}
	has("after the note", 1)
	v.Note(*volumeEvent("a", 4, "ams").Volume, 4)
	has("after an older note", 1)

	watching := make(told, 0, 3)
	watching = append(watching, volumeEvent("a", 1, "ams", "utr"), synced(1))
	watch(t, v, watching...)
	has("a list counts, though it is older", 1)
	v.Note(*volumeEvent("a", 7, "ams").Volume, 7)
	watch(t, v, volumeEvent("a", 1, "ams", "utr"), synced(1))
	has("a list undoes a note", 1)
}

// After the list, events come in order of revision: one that is older than a note was overtaken.
func TestAnOlderEventDoesNotUndoANote(t *testing.T) {
	v := view.New("ams", everyKind...)
	err := v.Watch(t.Context(), steps{func(fn func(federation.Event) error) {
		_ = fn(volumeEvent("a", 1, "ams"))
		_ = fn(synced(1))
		v.Note(*volumeEvent("a", 5, "ams", "utr").Volume, 5)
		_ = fn(volumeEvent("a", 3, "ams"))
		_, copies := v.Promised("utr")
		equal(t, "after an older event", copies, int32(1))
		_ = fn(volumeEvent("a", 5, "ams", "utr"))
		_ = fn(volumeEvent("a", 6, "ams"))
		_, copies = v.Promised("utr")
		equal(t, "after a later event", copies, int32(0))
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// steps is a watcher that tells what a function has it tell.
type steps struct {
	run func(fn func(federation.Event) error)
}

func (s steps) Watch(_ context.Context, fn func(federation.Event) error) error {
	s.run(fn)
	return nil
}

func (steps) Head(context.Context) (federation.Head, error) { return federation.Head{}, nil }

// A reign ends with its epoch, and with the control record.
func TestReign(t *testing.T) {
	v := filled(t, controlEvent("a", 1), synced(1))
	home, epoch, first := v.Reign("a")
	equal(t, "reign", []any{home, epoch, first.Err()}, []any{"ams-1", uint64(1), nil})
	watch(t, v, controlEvent("a", 1), synced(2))
	_, _, again := v.Reign("a")
	if first.Err() != nil || again != first {
		t.Error("the reign has ended in its epoch")
	}
	watch(t, v, controlEvent("a", 2), synced(3))
	_, epoch, second := v.Reign("a")
	equal(t, "the next reign", []any{epoch, first.Err(), second.Err()}, []any{uint64(2), context.Canceled, nil})
	watch(t, v, synced(4))
	equal(t, "a reign without a control record", second.Err(), context.Canceled)
	_, epoch, none := v.Reign("a")
	equal(t, "no reign", []any{epoch, none.Err()}, []any{uint64(0), nil})
}

func TestHeartbeats(t *testing.T) {
	v := filled(t, synced(1))
	equal(t, "never heard of", []any{v.Gone("ams-1"), v.Beats("ams-1")}, []any{false, uint64(0)})
	watch(t, v, aliveEvent("ams-1"), synced(2))
	equal(t, "alive", []any{v.Gone("ams-1"), v.Beats("ams-1")}, []any{false, uint64(1)})
	watch(t, v, synced(3))
	equal(t, "gone", []any{v.Gone("ams-1"), v.Beats("ams-1")}, []any{true, uint64(1)})
	watch(t, v, aliveEvent("ams-1"), synced(4))
	equal(t, "again", []any{v.Gone("ams-1"), v.Beats("ams-1")}, []any{false, uint64(2)})
}

// An admission with a node counts while the node has its attachment (view-4).
func TestDetach(t *testing.T) {
	node := view.Node{Volume: "a", Node: "n1"}
	v := filled(t, siteEvent("ams"), volumeEvent("a", 1, "ams"), admissionEvent("ams", "a", "10.0.0.1", "n1"), synced(2))
	may := func(when string, want bool) {
		t.Helper()
		equal(t, when, v.Use("a", client).Admitted, want)
	}
	may("without an attachment", false)
	equal(t, "recorded", v.Use("a", client).Recorded.Node, "n1")
	err := v.Watch(t.Context(), steps{func(fn func(federation.Event) error) {
		_ = fn(siteEvent("ams"))
		_ = fn(volumeEvent("a", 1, "ams"))
		_ = fn(admissionEvent("ams", "a", "10.0.0.1", "n1"))
		_ = fn(attachmentEvent("a", "n1", 5, federation.ReadOnly))
		_ = fn(synced(6))
		may("attached", true)
		equal(t, "access", v.Use("a", client).Access, federation.ReadOnly)
		equal(t, "addresses", v.Addresses(node), []netip.Addr{client})
		other, found := v.HasAddress(client, "n2")
		equal(t, "another node's address", []any{other, found}, []any{node, true})
		_, found = v.HasAddress(client, "n1")
		equal(t, "its own address", found, false)
		v.Detach(node, 8)
		may("detached before the watch tells", false)
		_ = fn(volumeEvent("b", 7, "ams"))
		_ = fn(attachmentEvent("a", "n1", 7, federation.ReadWrite))
		may("attached again, but earlier than detached", false)
		_ = fn(volumeEvent("b", 9, "ams"))
		may("the watch is behind with the deletion", false)
		_ = fn(gone(attachmentEvent("a", "n1", 0, ""), 8))
		may("the watch has told", false)
		_ = fn(attachmentEvent("a", "n1", 10, federation.ReadWrite))
		may("attached anew", true)

		v.Detach(node, 12)
		may("detached once more", false)
		v.Attach(node)
		may("taken back", true)
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// A view keeps the kinds that it was made for.
func TestKinds(t *testing.T) {
	v := view.New("ams", federation.KindVolume)
	watch(t, v, append(everything(), synced(9))...)
	e := v.Volume("a")
	if e == nil || e.Record == nil || e.Control != nil || e.Claims != nil || len(v.Sites()) != 0 || !v.Synced() {
		t.Errorf("the view has %+v and sites %v", e, v.Sites())
	}
}

// Listeners hear of a change when the view has it, and waiters wake up after them.
func TestChanges(t *testing.T) {
	v := view.New("ams", everyKind...)
	var heard []string
	var changed <-chan struct{}
	v.Listen(func(c view.Change) {
		select {
		case <-changed:
			t.Error("waiters have woken up before the listener ran")
		default:
		}
		is := "nothing"
		if v.Volume("a") != nil {
			is = "it"
		}
		heard = append(heard, fmt.Sprint(c.Kind, " ", c.Name, " ", c.Site, " ", c.Listing, " ", c.Before != nil, " ", c.After != nil, " ",
			is))
	})
	err := v.Watch(t.Context(), steps{func(fn func(federation.Event) error) {
		for _, e := range []federation.Event{aliveEvent("ams-1"), volumeEvent("a", 1), synced(1), gone(volumeEvent("a", 0), 2),
			gone(aliveEvent("ams-1"), 3)} {
			changed = v.Changed()
			_ = fn(e)
			select {
			case <-changed:
			default:
				t.Errorf("%v wakes nobody up", e.Kind)
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "changes", heard, []string{"alive ams-1 ams true false false nothing", "volume a  true false true it",
		"synced   true false false it",
		"volume a  false true false nothing", "alive ams-1 ams false false false nothing"})
}

// Readers run beside the watch. The race detector looks on.
func TestReadersBesideAWatch(t *testing.T) {
	reg := memory.New()
	v := view.New("ams", everyKind...)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() {
		if err := v.Watch(ctx, reg); !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
	})
	const n = 50
	for range 4 {
		work.Go(func() {
			for {
				changed := v.Changed()
				all, _ := v.Volumes()
				for _, e := range all {
					v.Use(e.UUID, client)
					v.Reign(e.UUID)
					v.Named(e.Name())
					v.Note(*e.Record, e.Revision)
				}
				v.Living()
				v.Promised("ams")
				if len(all) == n {
					return
				}
				select {
				case <-changed:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	for i := range n {
		id := fmt.Sprintf("0a6b4c1e-7a0b-5a42-9a2e-%012d", i)
		if _, err := reg.CreateVolume(ctx, federation.Volume{UUID: id, Name: fmt.Sprint("ns.v", i), Sites: []string{"ams"}},
			federation.Keyring{}); err != nil {
			t.Fatal(err)
		}
	}
	for {
		changed := v.Changed()
		if all, ok := v.Volumes(); ok && len(all) == n {
			break
		}
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatal("the view is not filled")
		}
	}
	cancel()
	work.Wait()
}

// A name that a later volume has is not lost with the volume that had it before.
func TestNameOfALaterVolume(t *testing.T) {
	was, is := volumeEvent("a", 1, "ams"), volumeEvent("b", 7, "ams")
	is.Volume.Name = was.Volume.Name
	v := filled(t, was, synced(2))
	watch(t, v, is, synced(9)) // a was purged and b made between two watches
	if got := v.Named(was.Volume.Name); got == nil || got.UUID != "b" {
		t.Errorf("the name leads to %v", got)
	}
}

// An access that this version does not know allows no writes.
func TestUnknownAccess(t *testing.T) {
	later := admissionEvent("ams", "a", "10.0.0.1", "n")
	later.Admission.Access = "ReadAppend"
	v := filled(t, siteEvent("ams"), volumeEvent("a", 1, "ams"), later, attachmentEvent("a", "n", 2, federation.ReadWrite), synced(3))
	if u := v.Use("a", client); !u.Admitted || u.Access != federation.ReadOnly {
		t.Errorf("use %+v", u)
	}
}
