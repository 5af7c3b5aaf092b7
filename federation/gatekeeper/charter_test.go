// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/pki"
)

// own is an organization's authority, and what the organization trusts.
type own struct {
	*pki.Authority
	cert, trust []byte
}

func (r *rig) authority(organization string) own {
	r.Helper()
	a, err := pki.NewOrganizationAuthority("demo", organization, time.Now(), time.Hour)
	if err != nil {
		r.Fatal(err)
	}
	p, err := a.Pair()
	if err != nil {
		r.Fatal(err)
	}
	founding, err := r.ca.Pair()
	if err != nil {
		r.Fatal(err)
	}
	return own{a, p.Cert, slices.Concat(p.Cert, founding.Cert)}
}

// by is somebody with a certificate of an organization's authority.
func (r *rig) by(o own, organization, site string, part pki.Part, name string) *one {
	r.Helper()
	p, err := o.Issue(pki.Identity{Federation: "demo", Organization: organization, Site: site, Gateway: name, Part: part},
		[]string{"127.0.0.1"}, time.Now(), time.Hour)
	if err != nil {
		r.Fatal(err)
	}
	c, err := pki.Load(o.trust, p, time.Now)
	if err != nil {
		r.Fatal(err)
	}
	return r.with(c)
}

func (r *rig) charter(serial uint64, all ...pki.Organization) federation.Charter {
	r.Helper()
	c := pki.Charter{Federation: "demo", Serial: serial}
	for _, o := range all {
		c.Set(o)
	}
	s, err := r.ca.SignCharter(c)
	if err != nil {
		r.Fatal(err)
	}
	return federation.Charter{Serial: serial, Signed: s}
}

func of(name string, authorities ...[]byte) pki.Organization {
	o := pki.Organization{Name: name}
	for _, a := range authorities {
		o.Authorities = append(o.Authorities, string(a))
	}
	return o
}

// eventually waits for what happens by itself. It gives up after 10 s: as long as an expulsion may
// take.
func (r *rig) eventually(what string, f func() bool) {
	r.Helper()
	begun := time.Now()
	for !f() {
		if time.Since(begun) > 10*time.Second {
			r.Fatalf("%s: not after %v", what, time.Since(begun))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Three organizations with an authority each: who was not admitted is not heard; who is expelled is
// heard no more, on open connections too; and is again when it is back. An authority takes over
// from another.
func TestSeveralAuthorities(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	a, b := r.authority("A"), r.authority("B")
	admin := r.as("A", "a", pki.PartAdministrator, "root")
	ga, gb := r.by(a, "A", "a", pki.PartGateway, "ga"), r.by(b, "B", "b", pki.PartGateway, "gb")
	short := func(f func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return f(ctx)
	}
	registers := func(o *one, site, organization string) error {
		return short(func(ctx context.Context) error { return o.Register(ctx, siteOf(site, organization)) })
	}
	if err := registers(ga, "a", "A"); err == nil {
		t.Fatal("an authority that nobody admitted is accepted")
	}
	rev, err := admin.PutCharter(ctx, 0, r.charter(1, of("A", a.cert), of("B", b.cert)))
	r.ok(err)
	for o, site := range map[*one]string{ga: "a", gb: "b"} {
		r.eventually("organization is admitted", func() bool { return registers(o, site, strings.ToUpper(site)) == nil })
	}
	if err := registers(r.as("A", "a", pki.PartGateway, "ga"), "a", "A"); err == nil {
		t.Error("the founding authority still vouches for A's gateways")
	}
	gone := of("B", b.cert)
	gone.Expelled = &pki.Expulsion{At: time.Now(), Why: "a test"}
	begun := time.Now()
	rev, err = admin.PutCharter(ctx, rev, r.charter(2, of("A", a.cert), gone))
	r.ok(err)
	r.eventually("B is not heard any more", func() bool {
		return short(func(ctx context.Context) error { _, err := gb.Head(ctx); return err }) != nil
	})
	t.Logf("expelled after %v", time.Since(begun).Round(time.Millisecond))
	if _, err := ga.Head(ctx); err != nil {
		t.Errorf("A is not heard: %v", err)
	}
	// Back, with the same certificate; and A's authority is replaced, without a restart of anybody.
	a2 := r.authority("A")
	rev, err = admin.PutCharter(ctx, rev, r.charter(3, of("A", a.cert, a2.cert), of("B", b.cert)))
	r.ok(err)
	r.eventually("B is back", func() bool {
		return short(func(ctx context.Context) error { _, err := gb.Head(ctx); return err }) == nil
	})
	ga2 := r.by(a2, "A", "a", pki.PartGateway, "ga")
	r.eventually("the new authority vouches", func() bool { return registers(ga2, "a", "A") == nil })
	_, err = admin.PutCharter(ctx, rev, r.charter(4, of("A", a2.cert), of("B", b.cert)))
	r.ok(err)
	r.eventually("the old authority does not", func() bool {
		return short(func(ctx context.Context) error { _, err := ga.Head(ctx); return err }) != nil
	})
	_, err = ga2.Head(ctx)
	r.ok(err)
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// Each way to put a charter there that is none is refused, logged and counted; and what is written
// behind the gatekeeper changes nothing.
func TestCharterAttacks(t *testing.T) {
	w := newWorldOfBefore(t)
	ctx := t.Context()
	founding, err := w.rig.ca.Pair()
	w.ok(err)
	in := []pki.Organization{of("A", founding.Cert), of("B", founding.Cert), of("C", founding.Cert)}
	mine := w.authority("C")
	other, err := pki.NewAuthority("demo", time.Now(), time.Hour)
	w.ok(err)
	foreign := &rig{TB: t, ca: other}
	second := w.charter(2, in...)
	rev, err := w.admin.PutCharter(ctx, 0, second)
	w.ok(err)
	without := []pki.Organization{of("A", founding.Cert), of("C", mine.cert)} // B is put out
	says := func(serial uint64, c federation.Charter) federation.Charter { c.Serial = serial; return c }
	attacks := []struct {
		name string
		by   *one
		kvs  []any
	}{
		{"a gateway puts an organization out", w.gc, []any{"charter", w.charter(3, without...)}},
		{"a person of an organization", w.pb, []any{"charter", w.charter(3, without...)}},
		{"an operator", w.oa, []any{"charter", w.charter(3, without...)}},
		{"an administrator without the founding authority", w.admin, []any{"charter", foreign.charter(3, without...)}},
		{"an administrator who deletes it", w.admin, []any{"charter", nil}},
		{"one of before", w.admin, []any{"charter", w.charter(1, without...)}},
		{"another with the same serial", w.admin, []any{"charter", w.charter(2, without...)}},
		{"one that says another serial", w.admin, []any{"charter", says(4, w.charter(3, in...))}},
		{"one without a signature", w.admin, []any{"charter", federation.Charter{Serial: 3, Signed: "x"}}},
		{"no charter", w.admin, []any{"charter", "x"}},
		{"below the charter's key", w.admin, []any{"charter/x", w.charter(3, in...)}},
	}
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			before := w.meter.all()
			if err := a.by.put(a.kvs...); !errors.Is(err, federation.ErrAccess) && a.name != "no charter" || err == nil {
				t.Fatalf("it is not refused: %v", err)
			}
			if n := w.meter.all() - before; n != 1 && a.name != "no charter" {
				t.Errorf("it is counted %d times", n)
			}
			if got, at, err := w.ga.GetCharter(ctx); err != nil || got != second || at != rev {
				t.Errorf("now it is %+v at %d: %v", got, at, err)
			}
		})
	}
	for name, c := range map[string]any{"forged": foreign.charter(9, without...), "one of before": w.charter(1, without...),
		"no record": "x"} {
		w.ok(w.behind("charter", c))
		w.eventually(name+" is told", func() bool { return strings.Contains(w.log.last(), "is not taken") })
		if _, err := w.gb.Head(ctx); err != nil {
			t.Errorf("%s, behind the gatekeeper: B is not heard: %v", name, err)
		}
		w.log.clear()
	}
	// What is there and nobody trusts is replaced.
	_, at, _ := w.ga.GetCharter(ctx)
	if at == 0 {
		at = w.revisionOf("charter")
	}
	if _, err := w.admin.PutCharter(ctx, at, w.charter(3, in...)); err != nil {
		t.Errorf("a true one after a forged one: %v", err)
	}
}

// behind writes a record past the gatekeeper, as a registry's host can.
func (w *world) behind(key string, v any) error {
	w.Helper()
	value, ok := v.(string)
	if !ok {
		p, err := federation.Encode(v)
		if err != nil {
			return err
		}
		value = string(p)
	}
	_, err := w.plain.Put(w.Context(), prefix+key, value)
	return err
}

func (w *world) revisionOf(key string) federation.Revision {
	w.Helper()
	res, err := w.plain.Get(w.Context(), prefix+key)
	w.ok(err)
	return federation.Revision(res.Kvs[0].ModRevision)
}

func (l *lines) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}
