// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

// Who runs a member of the registry writes its etcd behind the gatekeeper: each kind of record, in
// each way that he can. Readers that know better go on by what they know, tell it, and put it back;
// nobody takes anything new from him.
func TestBehindTheGatekeeper(t *testing.T) {
	w := newConcealing(t)
	ctx := t.Context()
	// Said before the record that it is about was written, as who knows its number can.
	early := w.pa.says(signed.Takeover{Volume: "v1", Gateway: "gb", Epoch: 1, Change: 2})
	w.pass(3 * time.Hour)
	v1 := volumeOf("v1", "a.one", "A", "a", "b")
	v1.OwnerSite, v1.OwnerCluster = "a", "uid-a"
	v1.Grants = []federation.Grant{{Site: "b", Namespace: "lab", Access: federation.ReadOnly}}
	rev := must[federation.Revision](w)(w.oa.CreateVolume(ctx, v1, ringOf("v1", "a")))
	older := w.plainly("volume/v1")
	v1.Grants = nil
	must[federation.Revision](w)(w.oa.UpdateVolume(ctx, rev, v1))
	ctl := federation.Control{Volume: "v1", Epoch: 1, Home: member("a"), Members: []federation.Member{member("a")},
		History: []federation.EpochStart{{Epoch: 1}}}
	rev = must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", 0, ctl))
	ctl.Members = append(ctl.Members, member("b"))
	must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", rev, ctl))
	now, _, err := w.ga.GetControl(ctx, "v1")
	w.ok(err)
	w.ok(w.ca.PutAttachment(ctx, federation.Attachment{Volume: "v1", Site: "a", Node: "n", Access: federation.ReadOnly}))
	w.ok(w.oa.PutClaim(ctx, federation.Claim{Volume: "v1", Site: "a", Namespace: "lab", Name: "x", Kind: federation.ClaimGeoVolume,
		Access: federation.ReadOnly}))
	w.ok(w.pa.PutAdmission(ctx, federation.Admission{Volume: "v1", Site: "b", Client: "10.0.0.9", Access: federation.ReadOnly}))
	v9 := volumeOf("v9", "nine", "A", "a", "c")
	v9.Blind, v9.Grants = []string{"c"}, []federation.Grant{{Site: "b", Namespace: "lab", Access: federation.ReadOnly}}
	must[federation.Revision](w)(w.pa.CreateVolume(ctx, v9, ringOf("v9", "a")))
	grown := ringOf("v9", "a")
	grown.Generation = 2
	grown.Later = []federation.LaterKey{{At: w.clock(), Wrapped: map[string][]byte{"a": []byte("c's own"), "c": []byte("c's own")}}}
	w.pass(10 * time.Second) // what an administrator signs from now on endorses nothing
	r := w.reader("B", "b", "gb")
	fresh := w.as("C", "c", pki.PartPerson, "carol") // knows nothing from before

	swap := func(change func(*federation.Control)) federation.Control {
		next := now.Clone()
		change(&next)
		next.Succeed(&now)
		return next
	}
	mine := swap(func(c *federation.Control) {
		c.Epoch, c.Home, c.Members = 2, member("c"), []federation.Member{member("c")}
		c.Begin(federation.EpochStart{Epoch: 2, Forced: true})
	})
	forced := func(word string) federation.Control {
		return swap(func(c *federation.Control) {
			c.Epoch, c.Home, c.Members = 2, member("b"), []federation.Member{member("b")}
			c.Begin(federation.EpochStart{Epoch: 2, Forced: true, Word: word})
		})
	}
	said := signed.Takeover{Volume: "v1", Gateway: "gb", Epoch: 1, Change: now.Change}
	with := func(change func(*signed.Takeover)) string { x := said; change(&x); return w.pa.says(x) }
	jumps := forced("")
	middle := jumps
	replayed := forced(with(func(x *signed.Takeover) { x.Change-- })) // of before what is known
	between := replayed
	replayed.Epoch = 4
	replayed.Begin(federation.EpochStart{Epoch: 4})
	replayed.Succeed(&between)
	jumps.Epoch, jumps.History = 3, append(jumps.History[:1:1], federation.EpochStart{Epoch: 3, Forced: true})
	jumps.Succeed(&middle)
	alone := swap(func(c *federation.Control) { c.Members = []federation.Member{member("a")} })
	stolen := v1
	stolen.Owner, stolen.OwnerSite, stolen.OwnerCluster = "C", "", ""
	granted := v1
	granted.Grants = []federation.Grant{{Site: "c", Namespace: "lab", Access: federation.ReadWrite}}
	placed := v1
	placed.Sites, placed.Generation = []string{"a", "b", "c"}, 2
	ring := federation.Keyring{Volume: "v1", Generation: 9, Wrapped: map[string][]byte{"a": []byte("known to C"), "b": []byte("too")}}
	lure := siteOf("b", "B")
	lure.WrapKey = []byte("C's own")
	taken := siteOf("b", "C")
	new2 := volumeOf("v2", "two", "A", "a")
	purge := federation.Purge{Volume: "v1", Name: "a.one", At: w.clock(), Size: v1.Spec.Size, Sites: v1.Sites, Generation: v1.Generation}
	admission := func(volume, site, node string) federation.Admission {
		return federation.Admission{Volume: volume, Site: site, Client: "10.0.0.66", Access: federation.ReadWrite, Node: node}
	}
	impostor := w.as("C", "a", pki.PartGateway, "ga")         // C's authority names A's site
	impostorOperator := w.as("C", "a", pki.PartOperator, "o") // and its operator
	for _, x := range []struct {
		name, key string
		record    any
		by        *one // nil: it has no signature
		number    uint64
		known     bool // there is such a record, which goes on
	}{
		{"volume, unsigned", "volume/v1", granted, nil, 0, true},
		{"volume, by a stranger who names himself its owner", "volume/v1", stolen, w.as("C", "c", pki.PartPerson, "carol"), w.later(),
			true},
		{"volume, by a stranger", "volume/v1", granted, w.as("C", "c", pki.PartPerson, "carol"), w.later(), true},
		{"volume, placed by a stranger's operator", "volume/v1", placed, w.as("C", "c", pki.PartOperator, "o"), w.later(), true},
		{"volume, by another's operator at that site", "volume/v1", placed, impostorOperator, w.later(), true},
		{"volume, by a gateway of its home", "volume/v1", placed, w.ga, w.later(), true},
		{"volume, by an administrator", "volume/v1", granted, w.admin, w.later(), true},
		{"volume, with a signature of an earlier write", "volume/v1", v1, w.oa, 1, true},
		{"volume, new, unsigned", "volume/v2", new2, nil, 0, false},
		{"volume, new, in another's name", "volume/v2", new2, w.as("C", "c", pki.PartPerson, "carol"), 1, false},
		{"control, unsigned", "control/v1", mine, nil, 0, true},
		{"control, taken by who may have no copy", "control/v1", mine, w.gc, mine.Change, true},
		{"control, by the home's name of another organization", "control/v1", alone, impostor, alone.Change, true},
		{"control, by a member in the home's name", "control/v1", alone, w.gb, alone.Change, true},
		{"control, by force, without a person's word", "control/v1", forced(""), w.gb, now.Change + 1, true},
		{"control, by force, with a stranger's word", "control/v1", forced(fresh.says(said)), w.gb, now.Change + 1, true},
		{"control, by force, with the word of the host's person", "control/v1", forced(w.pb.says(said)), w.gb, now.Change + 1, true},
		{"control, by force, with a gateway's word", "control/v1", forced(w.ga.says(said)), w.gb, now.Change + 1, true},
		{"control, by force, with a word about another gateway", "control/v1",
			forced(with(func(x *signed.Takeover) { x.Gateway = "ga" })), w.gb, now.Change + 1, true},
		{"control, by force, with a word about another volume", "control/v1",
			forced(with(func(x *signed.Takeover) { x.Volume = "v9" })), w.gb, now.Change + 1, true},
		{"control, by force, with a word about a record of before", "control/v1",
			forced(with(func(x *signed.Takeover) { x.Change-- })), w.gb, now.Change + 1, true},
		{"control, by force, after a record that nobody saw", "control/v1", jumps, w.gb, jumps.Change, true},
		{"control, by force, with the word that began an earlier epoch", "control/v1", replayed, w.gb, replayed.Change, true},
		{"control, for a volume that is not there", "control/v7", federation.Control{Volume: "v7", Epoch: 1, Change: 1, Home: member("c"),
			Members: []federation.Member{member("c")}}, w.gc, 1, false},
		{"keyring, unsigned", "keyring/v1", ring, nil, 0, true},
		{"keyring, by a stranger", "keyring/v1", ring, w.gc, w.later(), true},
		{"keyring, replaced by a member", "keyring/v1", ring, w.gb, w.later(), true},
		{"keyring, by an administrator", "keyring/v1", ring, w.admin, w.later(), true},
		{"keyring, another key by the host of a blind copy", "keyring/v9", grown, w.gc, w.later(), true},
		{"site, unsigned", "site/b", lure, nil, 0, true},
		{"site, another's key", "site/b", lure, w.gc, w.later(), true},
		{"site, taken over", "site/b", taken, w.as("C", "b", pki.PartGateway, "gb"), w.later(), true},
		{"site, another's key by an administrator", "site/b", lure, w.admin, w.later(), true},
		{"admission, unsigned", "admission/b/v1/10.0.0.66", admission("v1", "b", ""), nil, 0, false},
		{"admission, by a stranger", "admission/b/v1/10.0.0.66", admission("v1", "b", ""), w.as("C", "c", pki.PartPerson, "carol"), 0,
			false},
		{"admission, by the site itself", "admission/b/v1/10.0.0.66", admission("v1", "b", ""), w.pb, 0, false},
		{"admission of a node, by another site", "admission/b/v1/10.0.0.66", admission("v1", "b", "n"), w.gc, 0, false},
		{"attachment, unsigned", "attachment/b/v1/m", federation.Attachment{Volume: "v1", Site: "b", Node: "m",
			Access: federation.ReadWrite}, nil, 0, false},
		{"attachment, by another site", "attachment/b/v1/m", federation.Attachment{Volume: "v1", Site: "b", Node: "m",
			Access: federation.ReadWrite}, w.ca, 0, false},
		{"claim, by another site", "claim/v1/b/lab/y", federation.Claim{Volume: "v1", Site: "b", Namespace: "lab", Name: "y",
			Kind: federation.ClaimGeoVolume, Access: federation.ReadOnly}, w.oa, 0, false},
		{"lost, unsigned", "lost/a", federation.Lost{Site: "a", By: "x"}, nil, 0, false},
		{"lost, by another organization", "lost/a", federation.Lost{Site: "a", By: "x"}, w.pb, 0, false},
		{"purged, unsigned", "purged/v1", purge, nil, 0, false},
		{"purged, by a gateway, not deleted", "purged/v1", purge, w.gb, 0, false},
		{"observed, of another gateway", "observed/v1/ga", federation.Observed{Volume: "v1", Gateway: "ga", Epoch: 1}, w.gb, 0, false},
		{"notice, in another's name", "rewound/ga", federation.Notice{Gateway: "ga", Complete: true}, w.gc, 0, false},
		{"testimony, in another's name", "testimony/ga/control/v1", federation.Testimony{Gateway: "ga", Key: "control/v1",
			Deleted: true}, w.gc, 0, false},
		{"canary, in another's name", "canary/ga", map[string]any{"after": 1 << 40}, w.gc, 0, false},
		{"reconciled, by a gateway", "reconciled", federation.Reconciliation{ID: "99991231T000000", By: "x"}, w.gc, 0, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			kind := signed.KindOf(x.key)
			was := w.plainly(x.key)
			if x.known != (was != nil) {
				t.Fatalf("there is %q at %s", was, x.key)
			}
			value := must[[]byte](w)(federation.Encode(x.record))
			if x.by != nil {
				value = x.by.forge(x.key, x.number, x.record)
			}
			n, refusals := r.heard(), r.refusals(kind)
			_, err := w.plain.Put(ctx, prefix+x.key, string(value))
			w.ok(err)
			if kind == "rewound" { // nothing about volumes changes while it is there
				w.eventually("the reader hears of the notice", func() bool { return r.refusals(kind) > refusals })
				if err := w.pb.PutLost(ctx, federation.Lost{Site: "b", By: w.pb.id.String()}); !errors.Is(err, federation.ErrForged) {
					t.Errorf("in spite of the notice: %v", err)
				}
				w.ok(r.Tend(ctx, "gb", w.clock()))
			}
			for _, e := range r.after(n) {
				if kind != federation.KindObserved && (x.known || e.Err == nil) {
					t.Errorf("the reader was told of %s %s: %+v", e.Kind, e.Name, e)
				}
			}
			if kind == federation.KindObserved { // it is checked when somebody decides by it
				if all, err := r.ListObserved(ctx, "v1"); err != nil || len(all) > 0 {
					t.Errorf("read %+v (%v)", all, err)
				}
			}
			if got := r.refusals(kind); got != refusals+1 {
				t.Errorf("%d refusals were counted, not 1", got-refusals)
			}
			if line := r.log.last(); !strings.Contains(line, "audit=forged") || !strings.Contains(line, x.key) {
				t.Errorf("the last line of the log is %s", line)
			}
			if err := r.Trusted(); err != nil {
				t.Fatal(err)
			}
			if x.known && x.by != w.admin {
				w.readAsBefore(t, r, x.key, was)
			}
			// A reader that knows nothing takes it neither, if the record itself shows it.
			if _, err := readOne(ctx, fresh, x.key); err != nil && !errors.Is(err, federation.ErrForged) {
				t.Errorf("a reader without an archive: %v", err)
			}
			w.ok(r.Tend(ctx, "gb", w.clock()))
			// The site may have made another key, and the administrator took a gateway out; and the
			// host may have got the key, and been home.
			if x.by == w.admin && kind == federation.KindSite || x.key == "keyring/v9" {
				_, err = w.plain.Put(ctx, prefix+x.key, string(was))
				w.ok(err)
			}
			if is := w.plainly(x.key); x.known && !bytes.Equal(is, was) {
				t.Errorf("it was not put back: %s", is)
			} else if !x.known {
				_, err = w.plain.Delete(ctx, prefix+x.key)
				w.ok(err)
			}
			r.after(r.heard())
		})
	}

	// What was signed earlier is an older state, and is not believed either.
	t.Run("volume, rolled back", func(t *testing.T) {
		was := w.plainly("volume/v1")
		_, err := w.plain.Put(ctx, prefix+"volume/v1", string(older))
		w.ok(err)
		r.after(r.heard())
		w.readAsBefore(t, r, "volume/v1", was)
		w.ok(r.Tend(ctx, "gb", w.clock()))
		if is := w.plainly("volume/v1"); !bytes.Equal(is, was) {
			t.Errorf("it was not put back: %s", is)
		}
		r.after(r.heard())
	})
	// A word that is too old is not forged: clocks differ. It is not believed, and stays.
	t.Run("control, by force, with a word of long ago", func(t *testing.T) {
		was, n := w.plainly("control/v1"), r.heard()
		if now.Change != 2 {
			t.Fatalf("the record is of change %d", now.Change)
		}
		_, err := w.plain.Put(ctx, prefix+"control/v1", string(w.gb.forge("control/v1", now.Change+1, forced(early))))
		w.ok(err)
		if told := r.after(n); len(told) > 0 {
			t.Errorf("the reader was told of %+v", told)
		}
		w.readAsBefore(t, r, "control/v1", was)
		_, err = w.plain.Put(ctx, prefix+"control/v1", string(was))
		w.ok(err)
		r.after(r.heard())
	})
	for _, key := range []string{"volume/v1", "control/v1", "keyring/v1"} {
		t.Run(key+", deleted", func(t *testing.T) {
			was, n := w.plainly(key), r.heard()
			_, err := w.plain.Delete(ctx, prefix+key)
			w.ok(err)
			if told := r.after(n); len(told) > 0 {
				t.Errorf("the reader was told of %+v", told)
			}
			w.readAsBefore(t, r, key, was)
			w.ok(r.Tend(ctx, "gb", w.clock()))
			if is := w.plainly(key); !bytes.Equal(is, was) {
				t.Errorf("it was not put back: %s", is)
			}
			r.after(r.heard())
		})
	}
	t.Run("name, of another volume", func(t *testing.T) {
		_, err := w.plain.Put(ctx, prefix+"name/two", "v1")
		w.ok(err)
		if v, _, err := r.FindVolume(ctx, "two"); !errors.Is(err, federation.ErrForged) {
			t.Errorf("found %+v (%v)", v, err)
		}
	})
	t.Run("charter, without a signature", func(t *testing.T) {
		value := must[[]byte](w)(federation.Encode(federation.Charter{Serial: 99, Signed: "eyJ.eyJ.x"}))
		was := w.plainly("charter")
		_, err := w.plain.Put(ctx, prefix+"charter", string(value))
		w.ok(err)
		r.after(r.heard())
		if _, _, err := r.GetVolume(ctx, "v1"); err != nil {
			t.Error(err)
		}
		_, err = w.plain.Put(ctx, prefix+"charter", string(was))
		w.ok(err)
	})
	// The owner goes on as if nothing had been.
	v, at, err := w.oa.GetVolume(ctx, "v1")
	w.ok(err)
	v.Spec.Size, v.Generation = 2<<30, v.Generation+1
	must[federation.Revision](w)(w.oa.UpdateVolume(ctx, at, v))
	n := r.heard()
	w.eventually("the reader hears of it", func() bool {
		g, _, err := r.GetVolume(ctx, "v1")
		return err == nil &&
			g.Generation == v.Generation
	})
	_ = r.after(n)
	// So does a person of it who forces an epoch; and who was away sees it by what is there later.
	n = r.heard()
	is, at, err := w.gb.GetControl(ctx, "v1")
	w.ok(err)
	if !is.Same(now) || is.Change != now.Change {
		t.Fatalf("the record is %+v", is)
	}
	must[federation.Revision](w)(w.gb.SwapControl(ctx, "v1", at, forced(w.pa.says(said))))
	next, at, err := w.gb.GetControl(ctx, "v1")
	w.ok(err)
	next.Members = append(next.Members, member("a"))
	at = must[federation.Revision](w)(w.gb.SwapControl(ctx, "v1", at, next))
	if told := r.after(n); len(told) != 2 || told[0].Err != nil || told[1].Err != nil {
		t.Errorf("the reader was told of %+v", told)
	}
	r.rest()
	said.Epoch, said.Change, said.Gateway = 2, next.Change+1, "ga"
	next.Epoch, next.Home, next.Members = 3, member("a"), []federation.Member{member("a")}
	next.Begin(federation.EpochStart{Epoch: 3, Forced: true, Word: w.pa.says(said)})
	at = must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", at, next))
	next.Epoch = 4
	next.Begin(federation.EpochStart{Epoch: 4})
	must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", at, next))
	n, refused := r.heard(), r.refusals(federation.KindControl)
	r.wake()
	r.after(n)
	if got, _, err := r.GetControl(ctx, "v1"); err != nil || got.Epoch != 4 || r.refusals(federation.KindControl) != refused {
		t.Errorf("who was away reads %+v (%v)", got, err)
	}
}

// A volume's life, as readers follow it: none of what is right is refused, by those that have an
// archive and by those that begin in the middle; and who gave the volume away writes it no more.
func TestReadersFollow(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	old := w.reader("C", "c", "gc")
	v := volumeOf("v1", "one", "A", "a", "b")
	at := must[federation.Revision](w)(w.pa.CreateVolume(ctx, v, ringOf("v1", "a")))
	ctl := federation.Control{Volume: "v1", Epoch: 1, Home: member("a"), Members: []federation.Member{member("a")},
		History: []federation.EpochStart{{Epoch: 1}}}
	rev := must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", 0, ctl))
	ring, ringAt, err := w.ga.GetKeyring(ctx, "v1")
	w.ok(err)
	ring.Generation, ring.Wrapped["b"] = 2, []byte("wrapped for b")
	must[federation.Revision](w)(w.ga.PutKeyring(ctx, ringAt, ring))
	ctl.Members = append(ctl.Members, member("b"))
	rev = must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", rev, ctl))
	v.Sites, v.Generation = []string{"b"}, 2 // its home is to leave
	at = must[federation.Revision](w)(w.pa.UpdateVolume(ctx, at, v))
	w.ok(w.pa.PutAdmission(ctx, federation.Admission{Volume: "v1", Site: "b", Client: "10.0.0.9", Access: federation.ReadOnly}))
	ctl.Epoch, ctl.Home = 2, member("b")
	ctl.Begin(federation.EpochStart{Epoch: 2})
	rev = must[federation.Revision](w)(w.gb.SwapControl(ctx, "v1", rev, ctl))
	ctl.Members = []federation.Member{member("b")}
	must[federation.Revision](w)(w.gb.SwapControl(ctx, "v1", rev, ctl))
	// It is given to B, whose operator goes on, deletes it, and a gateway purges it.
	mine := w.plainly("volume/v1") // the record when A owned it
	v.Owner, v.OwnerSite, v.OwnerCluster = "B", "b", "uid-b"
	at = must[federation.Revision](w)(w.pa.UpdateVolume(ctx, at, v))
	v.Generation++
	must[federation.Revision](w)(w.ob.UpdateVolume(ctx, at, v))
	for name, r := range map[string]*reader{"an old reader": old, "a new reader": w.reader("B", "b", "gb")} {
		r.after(0)
		is, _, err := r.GetVolume(ctx, "v1")
		if err != nil || is.Owner != "B" || is.Generation != v.Generation {
			t.Errorf("%s: %+v, %v", name, is, err)
		}
		if c, _, err := r.GetControl(ctx, "v1"); err != nil || c.Home != member("b") || len(c.Members) != 1 {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
		if k, _, err := r.GetKeyring(ctx, "v1"); err != nil || k.Generation != 2 {
			t.Errorf("%s: %+v, %v", name, k, err)
		}
		// A wants it back, with what he once signed, and with what he signs now.
		again := v
		again.Owner, again.OwnerSite, again.OwnerCluster = "A", "", ""
		for _, value := range [][]byte{mine, w.pa.forge("volume/v1", w.later(), again), w.pa.forge("volume/v1", w.later(), v)} {
			was := w.plainly("volume/v1")
			_, err := w.plain.Put(ctx, prefix+"volume/v1", string(value))
			w.ok(err)
			r.after(r.heard())
			w.readAsBefore(t, r, "volume/v1", was)
			w.ok(r.Tend(ctx, r.name, w.clock()))
			if !bytes.Equal(w.plainly("volume/v1"), was) {
				t.Errorf("%s: it was not put back", name)
			}
		}
		r.mu.Lock()
		for k, n := range r.forged {
			if k != federation.KindVolume {
				t.Errorf("%s: %d records %s were refused", name, n, k)
			}
		}
		r.mu.Unlock()
	}
	_, at, err = w.ob.GetVolume(ctx, "v1")
	w.ok(err)
	v.Deleted, v.DeletedAt, v.PurgeAfter = true, w.clock(), w.clock().Add(time.Minute)
	at = must[federation.Revision](w)(w.ob.UpdateVolume(ctx, at, v))
	old.after(0)
	w.pass(2 * time.Minute)
	purge := federation.Purge{Volume: "v1", Name: "one", At: w.clock(), Size: v.Spec.Size, Sites: v.Sites, Pending: []string{"gb"}}
	w.ok(w.gb.PurgeVolume(ctx, at, purge))
	w.eventually("the reader hears of the purge", func() bool {
		_, _, err := old.GetVolume(ctx, "v1")
		return errors.Is(err,
			federation.ErrNotFound)
	})
	w.ok(w.gb.LeavePurge(ctx, "v1", "gb"))
	if all := must[[]federation.Purge](w)(w.reader("C", "c", "gc").ListPurges(ctx)); len(all) != 1 || len(all[0].Pending) > 0 {
		t.Errorf("purges: %+v", all)
	}
	old.after(0)
	if old.refusals(federation.KindVolume) != 6 || len(old.forged) != 1 { // what A wanted back
		t.Errorf("refused: %v", old.forged)
	}
}

// Putting back what somebody else signed is no way past the rules: not over what counts, not what
// was deleted, and not for everybody.
func TestPuttingBack(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	v := volumeOf("v1", "one", "A", "a", "b")
	v.Grants = []federation.Grant{{Site: "c", Namespace: "lab", Access: federation.ReadWrite}}
	at := must[federation.Revision](w)(w.pa.CreateVolume(ctx, v, ringOf("v1", "a")))
	older := w.plainly("volume/v1")
	v.Grants = nil
	must[federation.Revision](w)(w.pa.UpdateVolume(ctx, at, v))
	ctl := federation.Control{Volume: "v1", Epoch: 1, Home: member("a"), Members: []federation.Member{member("a")},
		History: []federation.EpochStart{{Epoch: 1}}}
	rev := must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", 0, ctl))
	before := w.plainly("control/v1")
	ctl.Members = append(ctl.Members, member("b"))
	must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", rev, ctl))
	admitted := federation.Admission{Volume: "v1", Site: "c", Client: "10.0.0.9", Access: federation.ReadOnly}
	w.ok(w.pa.PutAdmission(ctx, admitted))
	admission := w.plainly("admission/c/v1/10.0.0.9")
	w.ok(w.pa.DeleteAdmission(ctx, "v1", "c", "10.0.0.9"))
	stranger := w.as("C", "c", pki.PartPerson, "carol")
	granted := v
	granted.Grants = []federation.Grant{{Site: "c", Namespace: "lab", Access: federation.ReadWrite}}
	refused := func(name string, by *one, kvs ...any) {
		t.Helper()
		if err := by.put(kvs...); !errors.Is(err, federation.ErrAccess) {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused("an older record over a newer", w.gc, "volume/v1", older)
	refused("an older control record over a newer", w.gb, "control/v1", before)
	refused("an admission that was deleted", w.gc, "admission/c/v1/10.0.0.9", admission)
	refused("what a stranger signed", w.gc, "volume/v1", stranger.forge("volume/v1", w.later(), granted))
	refused("what he says that the owner signed", w.gc, "volume/v1", w.gc.forge("volume/v1", w.later(), granted))
	refused("of another key", w.gc, "volume/v2", older)
	// Now it is overwritten behind the gatekeeper: what counts comes back, by a gateway's hand.
	counts := w.plainly("volume/v1")
	_, err := w.plain.Put(ctx, prefix+"volume/v1", string(stranger.forge("volume/v1", w.later(), granted)))
	w.ok(err)
	refused("by a person", stranger, "volume/v1", counts)
	refused("what another stranger signed", w.gc, "volume/v1", w.pb.forge("volume/v1", w.later(), granted))
	w.ok(w.gc.put("volume/v1", counts))

	// A volume that was purged does not come back.
	_, at, err = w.pa.GetVolume(ctx, "v1")
	w.ok(err)
	v.Deleted, v.DeletedAt, v.PurgeAfter = true, w.clock(), w.clock().Add(time.Minute)
	at = must[federation.Revision](w)(w.pa.UpdateVolume(ctx, at, v))
	last, ring := w.plainly("volume/v1"), w.plainly("keyring/v1")
	w.pass(2 * time.Minute)
	w.ok(w.gb.PurgeVolume(ctx, at, federation.Purge{Volume: "v1", Name: "one", At: w.clock(), Size: v.Spec.Size, Sites: v.Sites,
		Pending: []string{"ga", "gb"}}))
	refused("a volume that was purged", w.gb, "volume/v1", last)
	refused("its keyring", w.gb, "keyring/v1", ring)
}
