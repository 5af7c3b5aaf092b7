// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

// used makes a volume that is in use at all its sites, by its owner A, with something of each kind
// of record.
func (w *world) used(uuid, name string, blind, granted []string, sites ...string) {
	w.Helper()
	ctx := w.Context()
	v := volumeOf(uuid, name, "A", sites...)
	v.Blind = blind
	for _, s := range granted {
		v.Grants = append(v.Grants, federation.Grant{Site: s, Namespace: "lab", Access: federation.ReadOnly})
	}
	must[federation.Revision](w)(w.pa.CreateVolume(ctx, v, ringOf(uuid, "a")))
	must[federation.Revision](w)(w.ga.SwapControl(ctx, uuid, 0, federation.Control{Volume: uuid, Epoch: 1, Home: member("a"),
		Members: []federation.Member{member("a")}, History: []federation.EpochStart{{Epoch: 1}}}))
	w.ok(w.ga.PutObserved(ctx, federation.Observed{Volume: uuid, Gateway: "ga", Message: "about-" + name}))
	w.ok(w.oa.PutClaim(ctx, federation.Claim{Volume: uuid, Site: "a", Namespace: "of-" + name, Name: "x", Kind: federation.ClaimGeoVolume,
		Access: federation.ReadOnly}))
	w.ok(w.ca.PutAttachment(ctx, federation.Attachment{Volume: uuid, Site: "a", Node: "node-of-" + name, Access: federation.ReadOnly}))
	w.ok(w.pa.PutAdmission(ctx, federation.Admission{Volume: uuid, Site: "a", Client: "10.1.1." + uuid[1:], Access: federation.ReadOnly}))
}

// sees is what somebody reads of a volume: a letter for each kind of record.
func (w *world) sees(o *one, uuid, name string) string {
	w.Helper()
	ctx, out := w.Context(), ""
	note := func(letter string, there bool, err error) {
		w.Helper()
		if err != nil && !errors.Is(err, federation.ErrNotFound) && !errors.Is(err, federation.ErrAccess) {
			w.Fatalf("%s reads %s of %s: %v", o.id, letter, uuid, err)
		}
		if there && err == nil {
			out += letter
		}
	}
	_, _, err := o.GetVolume(ctx, uuid)
	note("v", true, err)
	_, _, err = o.GetControl(ctx, uuid)
	note("c", true, err)
	_, _, err = o.GetKeyring(ctx, uuid)
	note("k", true, err)
	_, _, err = o.FindVolume(ctx, name)
	note("n", true, err)
	volumes, err := o.ListVolumes(ctx)
	note("V", slices.ContainsFunc(volumes, func(v federation.VolumeAt) bool { return v.Volume.UUID == uuid }), err)
	observed, err := o.ListObserved(ctx, uuid)
	note("o", len(observed) > 0, err)
	claims, err := o.ListClaims(ctx, "")
	note("l", slices.ContainsFunc(claims, func(c federation.Claim) bool { return c.Volume == uuid }), err)
	attached, err := o.ListAttachments(ctx, "")
	note("t", slices.ContainsFunc(attached, func(a federation.Attachment) bool { return a.Volume == uuid }), err)
	admitted, err := o.ListAdmissions(ctx, "")
	note("a", slices.ContainsFunc(admitted, func(a federation.Admission) bool { return a.Volume == uuid }), err)
	return out
}

const everything = "vcknVolta"

// An organization is shown the volumes that concern it, with all that is about them, and of others
// no name, in no way of reading.
func TestShown(t *testing.T) {
	w := newConcealing(t)
	ctx := t.Context()
	pc := w.as("C", "c", pki.PartPerson, "carol")
	began := must[federation.Head](w)(w.admin.Head(ctx))
	watched := map[string]func() []byte{}
	for name, o := range map[string]*one{"B": w.pb, "C": pc} {
		watched[name] = o.everything(t, clientv3.WithRev(int64(began.Revision)+1))
	}
	w.used("v1", "secret-own", nil, nil, "a")
	w.used("v2", "secret-copied", nil, nil, "a", "b")
	w.used("v3", "secret-granted", nil, []string{"b"}, "a")
	w.used("v4", "secret-blind", []string{"c"}, nil, "a", "c")
	for _, c := range []struct {
		uuid, name string
		a, b, c    string
	}{
		{"v1", "secret-own", everything, "", ""},
		{"v2", "secret-copied", everything, everything, ""},
		{"v3", "secret-granted", everything, everything, ""},
		{"v4", "secret-blind", everything, "", everything},
	} {
		for _, x := range []struct {
			o    *one
			want string
		}{{w.pa, c.a}, {w.ga, c.a}, {w.ca, c.a}, {w.pb, c.b}, {w.gb, c.b}, {w.ob, c.b}, {pc, c.c}, {w.gc, c.c}, {w.admin, everything}} {
			if got := w.sees(x.o, c.uuid, c.name); got != x.want {
				t.Errorf("of %s %s sees %q, and not %q", c.name, x.o.id, got, x.want)
			}
		}
	}
	hidden := map[string][]string{"B": {"secret-own", "secret-blind"}, "C": {"secret-own", "secret-copied", "secret-granted"}}
	shown := map[string][]string{"B": {"secret-copied", "secret-granted"}, "C": {"secret-blind"}}
	for name, o := range map[string]*one{"B": w.pb, "C": pc} {
		var all []byte
		for _, opts := range [][]clientv3.OpOption{{clientv3.WithPrefix()}, {clientv3.WithPrefix(), clientv3.WithSerializable()},
			{clientv3.WithPrefix(), clientv3.WithKeysOnly()}, {clientv3.WithPrefix(), clientv3.WithLimit(3)},
			{clientv3.WithPrefix(), clientv3.WithRev(int64(must[federation.Head](w)(o.Head(ctx)).Revision))}} {
			res, err := o.raw.Get(ctx, prefix, opts...)
			w.ok(err)
			all = append(all, fmt.Append(nil, res)...)
		}
		// The past is not shown otherwise.
		again := o.everything(t, clientv3.WithRev(int64(began.Revision)+1), clientv3.WithPrevKV())
		w.eventually("the watch has all", func() bool {
			return bytes.Contains(again(), []byte("admission/a/v"+map[string]string{"B": "3", "C": "4"}[name]))
		})
		for how, text := range map[string][]byte{"lists": all, "changes": watched[name](), "the past": again()} {
			for _, h := range hidden[name] {
				if bytes.Contains(text, []byte(h)) {
					t.Errorf("%s sees %s in %s", name, h, how)
				}
			}
			for _, s := range shown[name] {
				if !bytes.Contains(text, []byte(s)) {
					t.Errorf("%s does not see %s in %s", name, s, how)
				}
			}
		}
	}
	// Names are taken, whosever volumes have them.
	_, err := pc.CreateVolume(ctx, volumeOf("v9", "secret-own", "C", "c"), ringOf("v9", "c"))
	if !errors.Is(err, federation.ErrNameTaken) || !strings.Contains(err.Error(), "choose another name") ||
		strings.Contains(err.Error(), "v1") {
		t.Errorf("a name that is taken: %v", err)
	}
	if _, _, err := pc.FindVolume(ctx, "secret-own"); !errors.Is(err, federation.ErrAccess) {
		t.Errorf("found by its name: %v", err)
	}
	// Somebody who is not shown it changes it as little as before.
	if err := pc.PutAdmission(ctx, federation.Admission{Volume: "v1", Site: "a", Client: "10.0.0.1",
		Access: federation.ReadOnly}); !errors.Is(err, federation.ErrAccess) {
		t.Errorf("admitted by a stranger: %v", err)
	}
	// Nor does he learn by trying.
	tries := map[string]error{
		"an attachment": w.as("C", "c", pki.PartController, "c-csi").PutAttachment(ctx, federation.Attachment{Volume: "v1", Site: "c",
			Node: "n", Access: federation.ReadOnly}),
		"a claim": w.as("C", "c", pki.PartOperator, "o").PutClaim(ctx, federation.Claim{Volume: "v1", Site: "c", Namespace: "lab",
			Name: "x", Kind: federation.ClaimGeoVolume, Access: federation.ReadOnly}),
	}
	for key, value := range map[string]any{"volume/v1": volumeOf("v1", "another", "C", "c"), "control/v1": federation.Control{Volume: "v1",
		Epoch: 1, Change: 1, Home: member("c"), Members: []federation.Member{member("c")}}} {
		_, tries[key] = pc.raw.Txn(ctx).Then(clientv3.OpPut(prefix+key, string(pc.forge(key, w.later(), value)))).Commit()
	}
	for what, err := range tries {
		if err == nil || !strings.Contains(err.Error(), "not for this organization to write") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", what, err)
		}
	}
	count, err := pc.raw.Get(ctx, prefix+"name/secret-o", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || count.Count != 0 {
		t.Errorf("names are counted: %d (%v)", count.Count, err)
	}
	if _, err := pc.raw.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(prefix+"name/secret-o"), "=", 0).WithPrefix()).
		Then(clientv3.OpGet(prefix + "charter")).Commit(); err == nil {
		t.Error("names are found by conditions")
	}
	stub, err := pc.raw.Get(ctx, prefix+"name/secret-own")
	if err != nil || len(stub.Kvs) != 1 || stub.Kvs[0].CreateRevision != 0 || bytes.Contains(stub.Kvs[0].Value, []byte("v1")) {
		t.Errorf("of a name he is told %v (%v)", stub.Kvs, err)
	}
	// A record that says it is a stub is none.
	value := pc.forge("lost/c", 0, federation.Lost{Site: "c", By: pc.id.String()})
	value = append([]byte(`{"version":1,"elsewhere":{},`), value[1:]...)
	_, _ = pc.raw.Txn(ctx).Then(clientv3.OpPut(prefix+"lost/c", string(value))).Commit()
	if lost, err := w.pa.ListLost(ctx); err != nil || (len(lost) > 0) != (w.plainly("lost/c") != nil) {
		t.Errorf("what is lost: %v (%v), and there is %s", lost, err, w.plainly("lost/c"))
	}
}

// A person of the owner admits a client at another organization's site, which has neither copy nor
// grant: it is shown the volume while he does.
func TestShownForAClient(t *testing.T) {
	w := newConcealing(t)
	ctx := t.Context()
	w.used("v1", "one", nil, nil, "a")
	r := w.reader("C", "c", "gc")
	n := r.heard()
	w.ok(w.pa.PutAdmission(ctx, federation.Admission{Volume: "v1", Site: "c", Client: "10.0.0.7", Access: federation.ReadOnly}))
	kinds := map[federation.Kind]bool{}
	w.eventually("it is shown", func() bool {
		for _, e := range r.after(n) {
			kinds[e.Kind] = kinds[e.Kind] || !e.Deleted
		}
		return kinds[federation.KindVolume] && kinds[federation.KindAdmission] && kinds[federation.KindControl]
	})
	w.ok(w.pa.DeleteAdmission(ctx, "v1", "c", "10.0.0.7"))
	w.eventually("it is not any more", func() bool { return w.sees(w.gc, "v1", "one") == "" })
}

// A name is used again when its volume was purged, and whoever watches is shown the new volume as
// any other. What is left of the old one is cleaned up by who is shown it.
func TestNameAgain(t *testing.T) {
	w := newConcealing(t)
	ctx := t.Context()
	w.used("v1", "one", nil, nil, "a")
	v, _, err := w.pa.GetVolume(ctx, "v1")
	w.ok(err)
	v.Deleted, v.DeletedAt, v.PurgeAfter = true, w.clock(), w.clock().Add(time.Hour)
	_, at, err := w.pa.GetVolume(ctx, "v1")
	w.ok(err)
	at = must[federation.Revision](w)(w.pa.UpdateVolume(ctx, at, v))
	w.pass(2 * time.Hour)
	w.ok(w.ga.PurgeVolume(ctx, at, federation.Purge{Volume: "v1", At: w.clock(), Size: v.Spec.Size, Sites: v.Sites,
		Pending: []string{"ga"}}))
	w.used("v2", "one", nil, []string{"b"}, "a")
	for o, want := range map[*one]string{w.pa: everything, w.gb: everything, w.gc: ""} {
		if got := w.sees(o, "v2", "one"); got != want {
			t.Errorf("%s sees %q, and not %q", o.id, got, want)
		}
	}
	if all, err := w.gc.ListPurges(ctx); err != nil || len(all) > 0 {
		t.Errorf("a stranger is shown the purge %+v (%v)", all, err)
	}
	if all, err := w.ga.ListPurges(ctx); err != nil || len(all) != 1 || all[0].Name != "" {
		t.Errorf("its owner is shown purges %+v (%v)", all, err)
	}
}

// everything watches all records as somebody with a program of his own does, and returns what shows
// what came so far.
func (o *one) everything(t *testing.T, opts ...clientv3.OpOption) func() []byte {
	var all lines
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	watch := o.raw.Watch(ctx, prefix, append(opts, clientv3.WithPrefix())...)
	go func() {
		defer close(done)
		for res := range watch {
			for _, e := range res.Events {
				_, _ = fmt.Fprintf(&all, "%s %s %v\n", e.Kv.Key, e.Kv.Value, e.PrevKv)
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return func() []byte {
		all.mu.Lock()
		defer all.mu.Unlock()
		return bytes.Clone(all.text.Bytes())
	}
}

// Grants and copies come and go, and so does what is shown, to whoever watches and to whoever was
// away; nothing of it is taken for forged, and nothing that is known is lost.
func TestShownForATime(t *testing.T) {
	w := newConcealing(t)
	ctx := t.Context()
	w.used("v1", "one", nil, nil, "a")
	r := w.reader("C", "c", "gc")
	change := func(f func(v *federation.Volume)) {
		w.Helper()
		v, at, err := w.pa.GetVolume(ctx, "v1")
		w.ok(err)
		f(&v)
		must[federation.Revision](w)(w.pa.UpdateVolume(ctx, at, v))
	}
	grant := func(v *federation.Volume) {
		v.Grants = []federation.Grant{{Site: "c", Namespace: "lab", Access: federation.ReadOnly}}
	}
	withdraw := func(v *federation.Volume) { v.Grants = nil }
	// told returns what the reader was told about the volume since n: by kind, + and -.
	told := func(n int) map[federation.Kind]string {
		out := map[federation.Kind]string{}
		for _, e := range r.after(n) {
			switch {
			case e.Err != nil:
				t.Errorf("told of %+v", e)
			case e.Elsewhere != nil:
				if out[e.Kind] += "?"; !slices.Equal(e.Elsewhere.Sites, []string{"a"}) || e.Elsewhere.Size != 1<<30 {
					t.Errorf("elsewhere is %+v", e.Elsewhere)
				}
			case e.Deleted:
				out[e.Kind] += "-"
			default:
				out[e.Kind] += "+"
			}
		}
		return out
	}
	kinds := []federation.Kind{federation.KindControl, federation.KindKeyring, federation.KindClaim, federation.KindAttachment,
		federation.KindAdmission, federation.KindObserved}
	is := func(when string, got map[federation.Kind]string, volume, others string) {
		t.Helper()
		if got[federation.KindVolume] != volume {
			t.Errorf("%s: of the volume it was told %q, and not %q", when, got[federation.KindVolume], volume)
		}
		for _, k := range kinds {
			if got[k] != others {
				t.Errorf("%s: of a record of kind %s it was told %q, and not %q", when, k, got[k], others)
			}
		}
	}
	is("first", told(0), "?", "")
	n := r.heard()
	change(grant)
	is("granted", told(n), "+", "+")
	n = r.heard()
	w.ok(w.oa.DeleteClaim(ctx, "v1", "a", "of-one", "x"))
	w.ok(w.oa.PutClaim(ctx, federation.Claim{Volume: "v1", Site: "a", Namespace: "of-one", Name: "x", Kind: federation.ClaimGeoVolume,
		Access: federation.ReadOnly}))
	if got := told(n); got[federation.KindClaim] != "-+" {
		t.Errorf("of a claim it was told %q", got[federation.KindClaim])
	}
	n = r.heard()
	change(withdraw)
	is("withdrawn", told(n), "?", "-")
	n = r.heard()
	change(grant)
	is("granted again", told(n), "+", "+")
	for _, away := range []struct {
		what string
		do   func()
		want [2]string
	}{
		{"nothing", func() {}, [2]string{"+", "+"}},
		{"withdrawn and granted", func() { change(withdraw); change(grant) }, [2]string{"+", "+"}},
		{"withdrawn", func() { change(withdraw) }, [2]string{"?", ""}},
		{"a change of what is not shown", func() { change(func(v *federation.Volume) { v.Closing = true }) }, [2]string{"?", ""}},
		{"granted", func() { change(grant) }, [2]string{"+", "+"}},
	} {
		r.rest()
		away.do()
		n = r.heard()
		r.wake() // a new watch: it is told of all that there is
		is("away: "+away.what, told(n), away.want[0], away.want[1])
	}
	// A site that had a copy is shown that it is to have none, also when it was away for all of it.
	change(func(v *federation.Volume) { v.Sites, v.Generation, v.Grants = []string{"a", "c"}, v.Generation+1, nil })
	ctl, at, err := w.ga.GetControl(ctx, "v1")
	w.ok(err)
	ctl.Members = append(ctl.Members, member("c"))
	at = must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", at, ctl))
	r.after(r.heard())
	r.rest()
	ctl.Members = ctl.Members[:1]
	must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", at, ctl))
	change(func(v *federation.Volume) { v.Sites, v.Generation = []string{"a"}, v.Generation+1 })
	r.wake()
	if v, _, err := r.GetVolume(ctx, "v1"); err != nil || !slices.Equal(v.Sites, []string{"a"}) || !slices.Equal(v.Former, []string{"c"}) {
		t.Errorf("it reads %+v (%v)", v, err)
	}
	// Who does not keep it in mind does not take the copy away.
	v, vat, err := w.pa.GetVolume(ctx, "v1")
	w.ok(err)
	v.Former = nil
	value := must[[]byte](w)(federation.Encode(v))
	if value, err = signed.New(w.pa.creds, nil, nil).Sign("volume/v1", value, w.plainly); err != nil {
		t.Fatal(err)
	}
	_, err = w.pa.raw.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(prefix+"volume/v1"), "=", int64(vat))).
		Then(clientv3.OpPut(prefix+"volume/v1", string(value))).Commit()
	if err == nil || !strings.Contains(err.Error(), "former does not have site c") {
		t.Errorf("a former copy left out: %v", err)
	}
	for _, k := range append(kinds, federation.KindVolume) {
		if n := r.refusals(k); n > 0 {
			t.Errorf("%d records of kind %s were taken for forged", n, k)
		}
	}
	if err := r.Trusted(); err != nil {
		t.Error(err)
	}
	// It ends with a purge, of which everybody hears.
	change(func(v *federation.Volume) {
		v.Deleted, v.DeletedAt, v.PurgeAfter = true, w.clock(), w.clock().Add(time.Hour)
	})
	w.pass(2 * time.Hour)
	v, vat, err = w.ga.GetVolume(ctx, "v1")
	w.ok(err)
	r.after(r.heard())
	n = r.heard()
	w.ok(w.ga.PurgeVolume(ctx, vat, federation.Purge{Volume: "v1", Name: "one", At: w.clock(), Size: v.Spec.Size, Sites: v.Sites,
		Pending: []string{"ga", "gc"}}))
	is("purged", told(n), "-", "-")
	if left, err := w.plain.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly()); err != nil ||
		slices.ContainsFunc(left.Kvs, func(kv *mvccpb.KeyValue) bool {
			k := string(kv.Key)
			return strings.Contains(k, "v1") && !strings.Contains(k, "purged/")
		}) {
		t.Errorf("left is %v (%v)", left.Kvs, err)
	}
}

// Who can write etcd shows nobody less than the gatekeepers do: a record that says that it is not
// shown is none, and neither is one that takes a volume from its owner.
func TestHiddenByAMember(t *testing.T) {
	w := newConcealing(t)
	ctx := t.Context()
	w.used("v1", "one", nil, nil, "a", "b")
	r := w.reader("B", "b", "gb")
	for _, key := range []string{"volume/v1", "control/v1", "keyring/v1"} {
		was := w.plainly(key)
		for name, value := range map[string][]byte{"a stub": signed.Stub(federation.Elsewhere{}),
			"another owner": bytes.ReplaceAll(was, []byte(`"A"`), []byte(`"C"`))} {
			if bytes.Equal(value, was) {
				continue
			}
			n, refused := r.heard(), r.refusals(signed.KindOf(key))
			_, err := w.plain.Put(ctx, prefix+key, string(value))
			w.ok(err)
			if got := r.after(n); len(got) > 0 {
				t.Errorf("%s: %s: it was told of %+v", key, name, got)
			}
			w.readAsBefore(t, r, key, was)
			if r.refusals(signed.KindOf(key)) != refused+1 {
				t.Errorf("%s: %s: it was not told", key, name)
			}
			w.ok(r.Tend(ctx, "gb", w.clock()))
			if now := w.plainly(key); !bytes.Equal(now, was) {
				t.Errorf("%s: %s: it was not put back: %s", key, name, now)
			}
			r.after(r.heard())
		}
	}
}

// While a gateway says that the registry went back, gateways are shown everything, and then no
// more. Everybody is when a charter says so.
func TestShownToAll(t *testing.T) {
	w := newConcealing(t)
	ctx := t.Context()
	w.used("v1", "one", nil, nil, "a")
	pc := w.as("C", "c", pki.PartPerson, "carol")
	r := w.reader("C", "c", "gc")
	shown := func(when, person, want string) {
		t.Helper()
		w.eventually(when, func() bool { return w.sees(pc, "v1", "one") == person && w.sees(w.gc, "v1", "one") == want })
		w.eventually(when+", to who watches", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			last := ""
			for _, e := range r.told {
				if e.Kind == federation.KindVolume && e.Name == "v1" {
					if last = everything; e.Deleted {
						last = ""
					}
				}
			}
			return last == want
		})
	}
	shown("at first", "", "")
	value := must[[]byte](w)(federation.Encode(federation.Notice{Gateway: "ga", Why: "a test", At: w.clock()}))
	value, err := signed.New(w.ga.creds, nil, nil).Sign("rewound/ga", value, nil)
	w.ok(err)
	_, err = w.ga.raw.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(prefix+"reconciled"), "=", 0)).
		Then(clientv3.OpPut(prefix+"rewound/ga", string(value))).Commit()
	w.ok(err)
	shown("while it is refused", "", everything)
	_, err = w.plain.Delete(ctx, prefix+"rewound/ga")
	w.ok(err)
	shown("when it is not any more", "", "")
	root, err := w.rig.ca.Pair()
	w.ok(err)
	for i, conceals := range []bool{false, true} {
		c := pki.Charter{Federation: "demo", Serial: uint64(i) + 2, SignedSince: w.clock(), Conceals: conceals}
		for _, name := range []string{"A", "B", "C"} {
			c.Set(of(name, root.Cert))
		}
		s, err := w.rig.ca.SignCharter(c)
		w.ok(err)
		_, at, err := w.admin.GetCharter(ctx)
		w.ok(err)
		_, err = w.admin.PutCharter(ctx, at, federation.Charter{Serial: c.Serial, Signed: s})
		w.ok(err)
		all := map[bool]string{false: everything}[conceals]
		shown(fmt.Sprintf("conceals: %v", conceals), all, all)
	}
}
