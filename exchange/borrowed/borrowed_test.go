// SPDX-License-Identifier: Apache-2.0

package borrowed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/exchange"
	"github.com/weir-storage/weir/exchange/borrowed"
	"github.com/weir-storage/weir/exchange/ledger"
	"github.com/weir-storage/weir/exchange/lent"
	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/store/dir"
	"github.com/weir-storage/weir/store/storetest"
)

const deal = "6f1c2b6e-0000-4000-8000-000000000001"

// rig is a lent store of A at site ams, and gateways of B.
type rig struct {
	testing.TB
	ca       *pki.Authority
	registry *memory.Client
	dir      string
	below    store.Store
	address  string
	stop     func()
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func newRig(t testing.TB) *rig {
	ca, err := pki.NewAuthority("demo", time.Now().Add(-time.Hour), 2000*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{TB: t, ca: ca, registry: memory.New(), dir: t.TempDir()}
	r.below, err = dir.Open(filepath.Join(r.dir, "disk"))
	r.ok(err)
	now := time.Now().UTC().Truncate(time.Second)
	said := paper.Moment{At: now.Add(-time.Minute), By: "weir://demo/A/ams/ann"}
	q := &paper.Request{Terms: paper.Terms{ID: deal, Guest: "B", Host: "A", Offer: "disks", Kind: paper.KindStore, Site: "ams",
		Amount: 1 << 30, Until: now.Add(1000 * time.Hour), AnswerBy: now.Add(time.Hour)}, Made: said}
	a := &paper.Answer{ID: deal, Guest: "B", Host: "A", Accepted: &paper.Acceptance{Moment: said, Terms: q.Digest()}, Ready: &paper.Place{}}
	all := []paper.At{{Paper: paper.Paper{Request: q}}, {Paper: paper.Paper{Answer: a}}}
	for _, g := range []string{"b-0", "b-1"} {
		all = append(all, paper.At{Paper: paper.Paper{Room: &paper.Room{ID: deal, Guest: "B", Host: "A", Gateway: g, Bytes: 1 << 29}}})
	}
	r.ok(r.registry.PutPapers(t.Context(), all...))
	return r
}

func (r *rig) credentials(organization, site, name string, part pki.Part) *pki.Credentials {
	r.Helper()
	p, err := r.ca.Issue(pki.Identity{Federation: "demo", Organization: organization, Site: site, Gateway: name, Part: part},
		[]string{"127.0.0.1"}, time.Now().Add(-time.Hour), 1000*time.Hour)
	r.ok(err)
	root, err := r.ca.Pair()
	r.ok(err)
	c, err := pki.Load(root.Cert, p, time.Now)
	r.ok(err)
	return c
}

// start runs the lent store, at the same address each time.
func (r *rig) start() {
	r.Helper()
	c := r.credentials("A", "ams", "a-store", pki.PartStore)
	ctx, cancel := context.WithCancel(context.Background())
	s, err := lent.Open(ctx, lent.Config{Organization: "A", Site: "ams", By: c.Identity().String(), Store: r.below,
		Dir: filepath.Join(r.dir, "own"), Credentials: c, Registry: r.registry, Now: time.Now, Tell: time.Millisecond,
		Pause: func(ctx context.Context, d time.Duration) bool {
			select {
			case <-ctx.Done():
			case <-time.After(min(d, 100*time.Millisecond)):
			}
			return ctx.Err() == nil
		}, Log: slog.New(slog.DiscardHandler)})
	r.ok(err)
	var lc net.ListenConfig
	at := r.address
	if at == "" {
		at = "127.0.0.1:0"
	}
	l, err := lc.Listen(ctx, "tcp", at)
	r.ok(err)
	r.address = l.Addr().String()
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				r.Errorf("serve: %v", err)
			}
		})
	}
	r.Cleanup(r.stop)
}

// ledger opens that of a gateway.
func (r *rig) ledger(gateway string) *ledger.Ledger {
	r.Helper()
	l, err := ledger.Open(filepath.Join(r.dir, gateway+".json"), time.Now)
	r.ok(err)
	return l
}

func (r *rig) guest(gateway string, l *ledger.Ledger, wrap func(http.RoundTripper) http.RoundTripper) *borrowed.Store {
	r.Helper()
	s, err := borrowed.New(borrowed.Config{Agreement: deal, Guest: "B", Host: "A", Site: "ams", Endpoint: "https://" + r.address,
		Gateway: gateway, Credentials: r.credentials("B", "b", gateway, pki.PartGateway), Ledger: l, Book: r.registry, Now: time.Now,
		Wrap: wrap})
	r.ok(err)
	for range 100 { // until the store knows the agreement
		if err = s.Count(r.Context()); err == nil {
			return s
		}
		time.Sleep(50 * time.Millisecond)
	}
	r.Fatal(err)
	return nil
}

func put(ctx context.Context, s store.Store, name string, size int) error {
	return s.Put(ctx, name, int64(size), strings.NewReader(strings.Repeat("x", size)))
}

// The conformance suite of stores, over a lent one.
func TestSuite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		r := newRig(t)
		r.start()
		return r.guest("b-0", r.ledger("b-0"), nil)
	})
}

// Gateways of one organization find each other's objects.
func TestOthers(t *testing.T) {
	r := newRig(t)
	r.start()
	ctx := t.Context()
	a, b := r.guest("b-0", r.ledger("b-0"), nil), r.guest("b-1", r.ledger("b-1"), nil)
	r.ok(put(ctx, a, "v/1", 10))
	r.ok(put(ctx, b, "v/1", 10)) // it is there
	r.ok(put(ctx, b, "v/2", 20))
	if err := put(ctx, b, "v/1", 11); !errors.Is(err, store.ErrConflict) {
		t.Errorf("%v", err)
	}
	r.ok(b.GetRange(ctx, "v/1", 0, make([]byte, 10)))
	var all []string
	r.ok(a.List(ctx, "v/", func(i store.Info) error { all = append(all, i.Name); return nil }))
	if strings.Join(all, " ") != "v/1 v/2" {
		t.Errorf("%q", all)
	}
	r.registry.SetDown(true)
	r.ok(a.Delete(ctx, "v/2"))
	if _, err := b.Stat(ctx, "v/2"); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("%v", err)
	}
	r.registry.SetDown(false)
}

// asked counts requests to a bucket by method, and lists.
type asked struct {
	under http.RoundTripper
	mu    sync.Mutex
	n     map[string]int
}

func (a *asked) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.n[r.Method]++
	if r.URL.Query().Has("list-type") {
		a.n["list"]++
	}
	a.mu.Unlock()
	return a.under.RoundTrip(r)
}

func (a *asked) since() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer clear(a.n)
	return fmt.Sprint(a.n)
}

// What was listed is deleted without a search, in whoever's folder it is. An object that is in two
// folders goes from both, and so does one of which nothing is known. What another deleted before is
// not counted.
func TestDeletionOfWhatWasListed(t *testing.T) {
	r := newRig(t)
	r.start()
	ctx := t.Context()
	links := &asked{n: map[string]int{}}
	lb := r.ledger("b-1")
	a := r.guest("b-0", r.ledger("b-0"), nil)
	b := r.guest("b-1", lb, func(under http.RoundTripper) http.RoundTripper { links.under = under; return links })
	r.ok(put(ctx, a, "v/1", 10))
	r.ok(put(ctx, b, "v/2", 20))
	r.ok(put(ctx, a, "v/3", 30))
	copied := strings.Repeat("x", 30)
	r.ok(r.below.Put(ctx, "lent/"+deal+"/b-1/v/3", 30, strings.NewReader(copied)))
	all := func() (names string) {
		r.ok(a.List(ctx, "", func(i store.Info) error { names += i.Name + " "; return nil }))
		return names
	}
	nothing := func(store.Info) error { return nil }
	r.ok(b.List(ctx, "", nothing))
	r.ok(put(ctx, b, "v/4", 40))
	links.since()
	for _, name := range []string{"v/1", "v/2", "v/4"} {
		r.ok(b.Delete(ctx, name))
		if is := links.since(); is != "map[DELETE:1 HEAD:1]" {
			t.Errorf("%s: %s", name, is)
		}
	}
	r.ok(b.Delete(ctx, "v/3"))
	if is := links.since(); !strings.Contains(is, "list:1") || !strings.Contains(is, "DELETE:2") {
		t.Error(is)
	}
	if is := all(); is != "" {
		t.Errorf("%s is left", is)
	}
	if n := lb.Of(deal)["b-1"].Deletes; n != 5 {
		t.Errorf("%d deletions are counted", n)
	}

	r.ok(put(ctx, a, "v/6", 60))
	r.ok(b.List(ctx, "", nothing))
	r.ok(a.Delete(ctx, "v/6"))
	r.ok(b.Delete(ctx, "v/6"))
	if n := lb.Of(deal)["b-1"].Deletes; n != 5 {
		t.Errorf("%d deletions are counted, of one that was another's too", n)
	}

	// It was in another's folder, and is in this gateway's now.
	r.ok(put(ctx, a, "v/5", 50))
	r.ok(b.List(ctx, "", nothing))
	r.ok(a.Delete(ctx, "v/5"))
	r.ok(put(ctx, b, "v/5", 50))
	r.ok(b.Delete(ctx, "v/5"))
	if is := all(); is != "" {
		t.Errorf("%s is left", is)
	}
}

// flaky fails requests before they are sent, and answers after they came.
type flaky struct {
	under http.RoundTripper
	mu    sync.Mutex
	odds  *rand.Rand
	on    bool
}

func (f *flaky) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	what := f.odds.IntN(12)
	if !f.on {
		what = 12
	}
	f.mu.Unlock()
	if what == 0 {
		return nil, errors.New("the request is lost")
	}
	res, err := f.under.RoundTrip(r)
	if err == nil && what == 1 {
		_ = res.Body.Close()
		return nil, errors.New("the answer is lost")
	}
	return res, err
}

func (f *flaky) set(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on = on
}

// Both sides count the same within 0.1 %, after requests and answers were lost, the host ended at
// any time, the guest ended at any time, and each lost all that it had counted.
func TestUsageAgrees(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { agree(t, seed) })
	}
}

func agree(t *testing.T, seed uint64) {
	r := newRig(t)
	r.start()
	ctx := t.Context()
	odds := rand.New(rand.NewPCG(seed, 1))
	links := &flaky{odds: rand.New(rand.NewPCG(seed, 2))}
	l := r.ledger("b-0")
	wrap := func(under http.RoundTripper) http.RoundTripper { links.under = under; return links }
	g := r.guest("b-0", l, wrap)
	links.set(true)
	patiently := func(do func() error) {
		t.Helper()
		var err error
		for range 30 {
			if err = do(); err == nil || errors.Is(err, store.ErrNotExist) {
				return
			}
		}
		t.Fatal("it never works:", err)
	}
	copied := func(from, to string) {
		text, err := os.ReadFile(from)
		if err == nil {
			r.ok(os.WriteFile(to, text, 0o600))
		}
	}
	host := filepath.Join(r.dir, "own", "ledger.json")
	mine := filepath.Join(r.dir, "b-0.json")
	var names []string
	for n := range 120 {
		switch x := odds.IntN(20); {
		case x < 9:
			name, size := fmt.Sprintf("v/%d", n), 1000+odds.IntN(9000)
			patiently(func() error { return put(ctx, g, name, size) })
			names = append(names, name)
		case x < 15 && len(names) > 0:
			patiently(func() error { return g.GetRange(ctx, names[odds.IntN(len(names))], 0, make([]byte, 500)) })
		case x < 16 && len(names) > 0:
			patiently(func() error { return g.Delete(ctx, names[0]) })
			names = names[1:]
		case x == 16: // the host is killed: what it counted after its last save is gone
			copied(host, host+".before")
			patiently(func() error { return put(ctx, g, fmt.Sprintf("v/host-%d", n), 700) })
			r.stop()
			copied(host+".before", host)
			r.start()
		case x == 17: // so is the guest
			r.ok(l.Save())
			patiently(func() error { return g.GetRange(ctx, "v/none", 0, make([]byte, 5)) })
			l = r.ledger("b-0")
			links.set(false)
			g = r.guest("b-0", l, wrap)
			links.set(true)
		case x == 18 && n%3 == 0: // the host loses all that it counted
			r.stop()
			_ = os.Remove(host)
			r.start()
			links.set(false)
			r.ok(g.Count(ctx))
			links.set(true)
		case x == 19 && n%3 == 0: // the guest loses it
			_ = os.Remove(mine)
			l = r.ledger("b-0")
			links.set(false)
			g = r.guest("b-0", l, wrap)
			links.set(true)
		}
	}
	links.set(false)
	r.ok(g.Count(ctx))
	r.ok(g.Tell(ctx))
	desk := &exchange.Desk{Book: r.registry, Organization: "B", Now: time.Now}
	var u exchange.Usage
	for range 100 { // until the host has told it since
		all, err := desk.Usages(ctx, deal)
		if u = all[deal]; err == nil && u.Host.At.After(u.Guest.At) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if u.Differs != "" || u.Host.Puts == 0 || u.Host.ByteHours == 0 {
		t.Errorf("%s\nguest %+v\nhost  %+v", u.Differs, u.Guest, u.Host)
	}
	var there quantity.Bytes
	r.ok(r.below.List(ctx, "lent/"+deal+"/", func(i store.Info) error { there += quantity.Bytes(i.Size); return nil }))
	if u.Host.Stored != there || u.Guest.Stored != there {
		t.Errorf("%d bytes are there, the guest counted %d, the host %d", there, u.Guest.Stored, u.Host.Stored)
	}
	t.Logf("guest %+v, host %+v", u.Guest.Counters, u.Host.Counters)
}
