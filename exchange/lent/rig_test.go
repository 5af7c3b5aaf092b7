// SPDX-License-Identifier: Apache-2.0

package lent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/exchange/lent"
	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/store/dir"
	"github.com/weir-storage/weir/store/s3"
)

const (
	deal  = "6f1c2b6e-0000-4000-8000-000000000001"
	other = "6f1c2b6e-0000-4000-8000-000000000002"
	ended = "6f1c2b6e-0000-4000-8000-000000000003"
)

// rig is a store of A at site ams, with agreements with B and C.
type rig struct {
	testing.TB
	ca       *pki.Authority
	registry *memory.Client
	dir      string
	below    store.Store
	log      *lines
	meter    *meter
	address  string

	mu    sync.Mutex
	ahead time.Duration
	stop  func()
}

// lines are what was logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Len()
}

// since is what was logged after a mark.
func (l *lines) since(mark int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()[mark:]
}

type meter struct {
	mu sync.Mutex
	n  int
}

func (m *meter) Refused(string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n++
}

func (m *meter) all() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.n
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// now is the store's clock.
func (r *rig) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Add(r.ahead)
}

func (r *rig) set(ahead time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ahead = ahead
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

// agree writes an agreement of a guest about so many bytes.
func (r *rig) agree(id, guest string, amount quantity.Bytes, gateways ...string) {
	r.Helper()
	now := time.Now().UTC().Truncate(time.Second)
	said := paper.Moment{At: now.Add(-time.Minute), By: "weir://demo/A/ams/ann"}
	q := &paper.Request{Terms: paper.Terms{ID: id, Guest: guest, Host: "A", Offer: "disks", Kind: paper.KindStore, Site: "ams",
		Amount: amount,
		Until:  now.Add(1000 * time.Hour), Notice: quantity.Duration(time.Hour), Grace: quantity.Duration(time.Hour),
		AnswerBy: now.Add(time.Hour)}, Made: said}
	a := &paper.Answer{ID: id, Guest: guest, Host: "A", Accepted: &paper.Acceptance{Moment: said, Terms: q.Digest()}, Ready: &paper.Place{}}
	all := []paper.At{{Paper: paper.Paper{Request: q}}, {Paper: paper.Paper{Answer: a}}}
	for _, g := range gateways {
		all = append(all, paper.At{Paper: paper.Paper{Room: &paper.Room{ID: id, Guest: guest, Host: "A", Gateway: g, Bytes: amount}}})
	}
	r.ok(r.registry.PutPapers(r.Context(), all...))
}

// change changes a paper that is there.
func (r *rig) change(name string, change func(*paper.Paper)) {
	r.Helper()
	p, err := r.registry.GetPaper(r.Context(), name)
	r.ok(err)
	change(&p.Paper)
	r.ok(r.registry.PutPapers(r.Context(), p))
}

func newRig(t testing.TB) *rig {
	ca, err := pki.NewAuthority("demo", time.Now().Add(-time.Hour), 2000*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{TB: t, ca: ca, registry: memory.New(), dir: t.TempDir(), log: new(lines), meter: new(meter)}
	if r.below, err = dir.Open(filepath.Join(r.dir, "disk")); err != nil {
		t.Fatal(err)
	}
	r.agree(deal, "B", 1000, "b-0", "b-1")
	r.agree(other, "C", 1000, "c-0")
	return r
}

// start runs the store until stop is called, or the test ends.
func (r *rig) start() {
	r.Helper()
	c := r.credentials("A", "ams", "a-store", pki.PartStore)
	ctx, cancel := context.WithCancel(context.Background())
	s, err := lent.Open(ctx, lent.Config{Organization: "A", Site: "ams", By: c.Identity().String(), Store: r.below,
		Dir: filepath.Join(r.dir, "own"), Credentials: c, Registry: r.registry, Now: r.now, Meter: r.meter, Tell: time.Millisecond,
		Pause: func(ctx context.Context, d time.Duration) bool {
			select {
			case <-ctx.Done():
			case <-time.After(min(d, 200*time.Millisecond)):
			}
			return ctx.Err() == nil
		}, Log: slog.New(slog.NewTextHandler(r.log, nil))})
	r.ok(err)
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
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

// one is a gateway, or somebody who says that he is one.
type one struct {
	*rig
	http *http.Client
	name string
}

func (r *rig) as(organization, name string, part pki.Part) *one {
	r.Helper()
	c := r.credentials(organization, strings.ToLower(organization), name, part)
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = c.ClientByIdentity(pki.Expect{Organizations: []string{"A"}, Site: "ams", Part: pki.PartStore})
	r.Cleanup(t.CloseIdleConnections)
	return &one{r, &http.Client{Transport: t}, name}
}

// ask calls the store's own service.
func (o *one) ask(path string, q, a any) error {
	o.Helper()
	text, err := json.Marshal(q)
	o.ok(err)
	req, err := http.NewRequestWithContext(o.Context(), http.MethodPost, "https://"+o.address+path, bytes.NewReader(text))
	o.ok(err)
	res, err := o.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", res.Status, got)
	}
	return json.Unmarshal(got, a)
}

// granted asks for a capability, until the store knows the agreement.
func (o *one) granted(agreement string) lent.Granted {
	o.Helper()
	var g lent.Granted
	var err error
	for range 100 {
		if err = o.ask("/.weir/capability", lent.Asked{Agreement: agreement}, &g); err == nil {
			return g
		}
		time.Sleep(50 * time.Millisecond)
	}
	o.Fatal(err)
	return g
}

// with is the bucket of an agreement, by a capability.
func (o *one) with(g lent.Granted, bucket string) *s3.Store {
	o.Helper()
	s, err := s3.New(s3.Config{Endpoint: "https://" + o.address, Bucket: bucket, AccessKey: g.Access, SecretKey: g.Secret,
		Transport: o.http.Transport})
	o.ok(err)
	return s
}

func (o *one) bucket(agreement string) *s3.Store {
	o.Helper()
	return o.with(o.granted(agreement), agreement)
}

// put puts an object of so many bytes.
func put(ctx context.Context, s store.Store, name string, size int) error {
	return s.Put(ctx, name, int64(size), strings.NewReader(strings.Repeat("x", size)))
}
