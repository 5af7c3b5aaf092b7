// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/pki"
)

// because returns a value with what it follows from.
func because(t *testing.T, value, of []byte) []byte {
	t.Helper()
	e := map[string]json.RawMessage{}
	if err := json.Unmarshal(value, &e); err != nil {
		t.Fatal(err)
	}
	e["because"] = of
	out, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What one forged record does not do, several may: each of these is a sequence of writes behind the
// gatekeeper, by somebody who has certificates of organization C in any site's and gateway's name.
func TestSequencesBehindTheGatekeeper(t *testing.T) {
	carol := func(w *world) *one { return w.as("C", "c", pki.PartPerson, "carol") }
	raw := func(w *world, key string, value []byte) {
		w.Helper()
		_, err := w.plain.Put(w.Context(), prefix+key, string(value))
		w.ok(err)
	}
	gone := func(w *world, keys ...string) {
		w.Helper()
		for _, k := range keys {
			_, err := w.plain.Delete(w.Context(), prefix+k)
			w.ok(err)
		}
	}
	for name, attack := range map[string]func(t *testing.T, w *world, r *reader){
		"a purge that follows from a record of his own": func(_ *testing.T, w *world, _ *reader) {
			made := volumeOf("v1", "one", "C", "a", "b")
			made.Deleted, made.DeletedAt, made.PurgeAfter = true, w.clock().Add(-48*time.Hour), w.clock().Add(-24*time.Hour)
			p := federation.Purge{Volume: "v1", Name: "one", At: w.clock(), Size: made.Spec.Size, Sites: made.Sites, Generation: 1}
			raw(w, "purged/v1", because(t, carol(w).forge("purged/v1", 0, p), carol(w).forge("volume/v1", w.later(), made)))
			gone(w, "volume/v1", "control/v1", "keyring/v1", "name/one")
		},
		"a site that is deleted and made anew": func(_ *testing.T, w *world, _ *reader) {
			gone(w, "site/b")
			raw(w, "site/b", w.as("C", "b", pki.PartGateway, "gb").forge("site/b", w.later(), siteOf("b", "C")))
		},
		"a record that nobody reads, and then an old one": func(_ *testing.T, w *world, _ *reader) {
			first := w.plainly("volume/v1")
			v, at, err := w.pa.GetVolume(w.Context(), "v1")
			w.ok(err)
			v.Generation++
			must[federation.Revision](w)(w.pa.UpdateVolume(w.Context(), at, v))
			raw(w, "volume/v1", []byte("xx"))
			raw(w, "volume/v1", first)
			raw(w, "site/b", []byte(`{"version":1}`))
			raw(w, "site/b", w.as("C", "b", pki.PartGateway, "gb").forge("site/b", w.later(), siteOf("b", "C")))
		},
		"a format of a later release": func(_ *testing.T, w *world, _ *reader) {
			raw(w, "control/v1", bytes.Replace(w.plainly("control/v1"), []byte(`"version":1`), []byte(`"version":2`), 1))
		},
		"another's gateway at a site of his own": func(_ *testing.T, w *world, _ *reader) {
			s := siteOf("c", "C")
			s.Gateways = append(s.Gateways, federation.Gateway{Name: "ga", Addr: "127.0.0.1:6666", Incarnation: "i"})
			raw(w, "site/c", w.gc.forge("site/c", w.later(), s))
		},
		"another epoch without force, a home that changes in one, and an old record": func(_ *testing.T, w *world, _ *reader) {
			now, _, err := w.ga.GetControl(w.Context(), "v1")
			w.ok(err)
			for _, change := range []func(*federation.Control){
				func(c *federation.Control) { c.Home = member("b") },
				func(c *federation.Control) {
					c.Epoch, c.Home, c.Members = 2, member("b"), []federation.Member{member("b"), member("c")}
					c.Begin(federation.EpochStart{Epoch: 2})
				},
				func(c *federation.Control) {
					c.Epoch, c.Home, c.History = 2, member("b"), []federation.EpochStart{{Epoch: 2}}
				},
			} {
				next := now.Clone()
				change(&next)
				next.Succeed(&now)
				raw(w, "control/v1", w.gb.forge("control/v1", next.Change, next))
			}
			first := now.Clone()
			first.Members, first.Trail, first.Change = []federation.Member{member("a")}, nil, 1
			raw(w, "control/v1", w.ga.forge("control/v1", 1, first))
		},
		"a gateway's name, and a volume's": func(t *testing.T, w *world, _ *reader) {
			raw(w, "gateway/ga", []byte("c"))
			gone(w, "name/one")
			ctx := w.Context()
			if err := w.ga.Register(ctx, siteOf("a", "A")); err != nil {
				t.Errorf("a gateway cannot register any more: %v", err)
			}
			if err := w.ga.PutObserved(ctx, federation.Observed{Volume: "v1", Gateway: "ga"}); err != nil {
				t.Errorf("a gateway cannot report any more: %v", err)
			}
			must[federation.Revision](w)(carol(w).CreateVolume(ctx, volumeOf("v6", "one", "C", "c"), ringOf("v6", "c")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ctx := t.Context()
			must[federation.Revision](w)(w.pa.CreateVolume(ctx, volumeOf("v1", "one", "A", "a", "b"), ringOf("v1", "a")))
			ctl := federation.Control{Volume: "v1", Epoch: 1, Home: member("a"), Members: []federation.Member{member("a")},
				History: []federation.EpochStart{{Epoch: 1}}}
			rev := must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", 0, ctl))
			ctl.Members = append(ctl.Members, member("b"))
			must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", rev, ctl))
			r := w.reader("B", "b", "gb")
			attack(t, w, r)
			r.after(0)
			if err := r.Trusted(); err != nil {
				t.Fatal(err)
			}
			check := func(when string) {
				t.Helper()
				if v, _, err := r.GetVolume(ctx, "v1"); err != nil || v.Owner != "A" || v.Deleted {
					t.Errorf("%s: the volume is %+v, %v", when, v, err)
				}
				c, _, err := r.GetControl(ctx, "v1")
				if err != nil || c.Epoch != 1 || c.Home != member("a") || len(c.Members) != 2 {
					t.Errorf("%s: its home is %+v, %v", when, c, err)
				}
				if _, _, err := r.GetKeyring(ctx, "v1"); err != nil {
					t.Errorf("%s: its keyring: %v", when, err)
				}
				all, err := r.Sites(ctx)
				for _, s := range all {
					if s.Site.Name == "b" && s.Site.Organization != "B" || s.Site.Name == "c" && len(s.Site.Gateways) != 1 {
						t.Errorf("%s: site %+v", when, s.Site)
					}
				}
				if err != nil {
					t.Errorf("%s: sites: %v", when, err)
				}
			}
			check("before")
			// Who lists everything anew believes no more.
			synced := make(chan error, 1)
			enough := errors.New("enough")
			go func() {
				synced <- r.Watch(ctx, func(e federation.Event) error {
					if e.Kind == federation.KindSynced {
						return enough
					}
					if e.Volume != nil && e.Volume.UUID == "v6" {
						t.Errorf("a second volume of the name is believed")
					}
					return nil
				})
			}()
			if err := <-synced; !errors.Is(err, enough) {
				t.Fatal(err)
			}
			check("after a list")
			for range 3 { // what was deleted with others comes back one by one
				w.pass(3 * time.Second)
				_ = r.Tend(ctx, "gb", w.clock()) // a gateway whose site is gone may not write yet
			}
			if len(w.plainly("site/b")) == 0 { // as a gateway does that the registry forgot
				w.ok(r.Register(ctx, siteOf("b", "B")))
			}
			check("after it was put back")
			if err := r.Trusted(); err != nil {
				t.Fatal(err)
			}
			fresh := w.reader("B", "b", "gb")
			if v, _, err := fresh.GetVolume(ctx, "v1"); err != nil || v.Owner != "A" {
				t.Errorf("a new reader reads %+v, %v", v, err)
			}
			if c, _, err := fresh.GetControl(ctx, "v1"); err != nil || c.Home != member("a") {
				t.Errorf("a new reader reads %+v, %v", c, err)
			}
		})
	}

	t.Run("the home of a volume that is new", func(t *testing.T) {
		w := newWorld(t)
		r := w.reader("B", "b", "gb")
		must[federation.Revision](w)(w.pa.CreateVolume(t.Context(), volumeOf("v1", "one", "A", "a", "b"), ringOf("v1", "a")))
		raw(w, "control/v1", w.gc.forge("control/v1", 1, federation.Control{Volume: "v1", Epoch: 1, Change: 1, Home: member("c"),
			Members: []federation.Member{member("c")}, History: []federation.EpochStart{{Epoch: 1}}}))
		r.after(0)
		if c, _, err := r.GetControl(t.Context(), "v1"); !errors.Is(err, federation.ErrForged) {
			t.Errorf("its home is %+v, %v", c, err)
		}
	})
	t.Run("an admission that was taken back", func(t *testing.T) {
		w := newWorld(t)
		ctx := t.Context()
		must[federation.Revision](w)(w.pa.CreateVolume(ctx, volumeOf("v1", "one", "A", "a"), ringOf("v1", "a")))
		a := federation.Admission{Volume: "v1", Site: "b", Client: "10.0.0.9", Access: federation.ReadWrite}
		w.ok(w.pa.PutAdmission(ctx, a))
		r := w.reader("B", "b", "gb")
		was := w.plainly("admission/b/v1/10.0.0.9")
		w.ok(w.pa.DeleteAdmission(ctx, "v1", "b", "10.0.0.9"))
		r.after(0)
		raw(w, "admission/b/v1/10.0.0.9", was)
		for _, e := range r.after(0) {
			if e.Admission != nil && e.Revision > 0 && e.Kind == federation.KindAdmission && r.refusals(federation.KindAdmission) == 0 {
				t.Errorf("it is believed again: %+v", e)
			}
		}
		w.pass(2 * time.Minute)
		w.ok(w.pa.PutAdmission(ctx, a)) // the owner may
		n := r.refusals(federation.KindAdmission)
		r.after(0)
		if all, err := r.ListAdmissions(ctx, "b"); err != nil || len(all) != 1 || r.refusals(federation.KindAdmission) != n {
			t.Errorf("admitted again: %+v, %v", all, err)
		}
	})
}
