// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/etcd"
	"github.com/weir-storage/weir/federation/etcd/etcdtest"
	"github.com/weir-storage/weir/federation/gatekeeper"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

// rig is a real etcd with a gatekeeper beside it, and an authority.
type rig struct {
	testing.TB
	etcd    *etcdtest.Server
	ca      *pki.Authority
	address string
	log     *lines
	meter   *counts
	plain   *clientv3.Client // past the gatekeeper

	mu      sync.Mutex
	now     time.Time
	between func() // when a change was judged and is not sent yet, once
}

// interfere runs what is to happen between.
func (r *rig) interfere() {
	r.mu.Lock()
	f := r.between
	r.between = nil
	r.mu.Unlock()
	if f != nil {
		f()
	}
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

// last returns the last line.
func (l *lines) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := strings.Split(strings.TrimSpace(l.text.String()), "\n")
	return all[len(all)-1]
}

// counts are what the gatekeeper told its meter.
type counts struct {
	mu      sync.Mutex
	refused map[string]int // by part and kind
}

func (c *counts) Asked(string, pki.Part, codes.Code, time.Duration) {}

func (c *counts) Refused(by pki.Part, kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused[string(by)+" "+kind]++
}

func (c *counts) all() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.refused {
		n += x
	}
	return n
}

// validFor is longer than any test lets pass.
const validFor = 2000 * 24 * time.Hour

// newRig starts both. They end with the test.
func newRig(t testing.TB) *rig {
	r := &rig{TB: t, etcd: etcdtest.Start(t, nil), log: new(lines), meter: &counts{refused: map[string]int{}}, now: time.Now()}
	var err error
	if r.ca, err = pki.NewAuthority("demo", time.Now(), validFor); err != nil {
		t.Fatal(err)
	}
	r.plain, err = clientv3.New(clientv3.Config{Endpoints: []string{r.etcd.Endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.plain.Close() })
	g, err := gatekeeper.New(gatekeeper.Config{Federation: "demo", Etcd: strings.TrimPrefix(r.etcd.Endpoint, "http://"),
		Credentials: r.credentials("SURF", "ams", pki.PartRegistry, "registry-ams"), Now: r.clock, Meter: r.meter,
		Log: slog.New(slog.NewTextHandler(r.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	g.BeforeChanges(r.interfere)
	ctx, cancel := context.WithCancel(context.Background())
	listening, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- g.Serve(ctx, func(ctx context.Context) (net.Listener, error) {
			at := r.address
			if at == "" {
				at = "127.0.0.1:0"
			}
			var lc net.ListenConfig
			l, err := lc.Listen(ctx, "tcp", at)
			if err == nil && r.address == "" {
				listening <- l.Addr().String()
			}
			return l, err
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, g.Close()); err != nil {
			t.Error(err)
		}
	})
	r.address = <-listening
	return r
}

func (r *rig) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

// credentials are of a certificate that the authority issues.
func (r *rig) credentials(organization, site string, part pki.Part, name string) *pki.Credentials {
	r.Helper()
	p, err := r.ca.Issue(pki.Identity{Federation: "demo", Organization: organization, Site: site, Gateway: name, Part: part},
		[]string{"127.0.0.1"}, time.Now(), validFor)
	if err != nil {
		r.Fatal(err)
	}
	root, err := r.ca.Pair()
	if err != nil {
		r.Fatal(err)
	}
	c, err := pki.Load(root.Cert, p, r.clock)
	if err != nil {
		r.Fatal(err)
	}
	return c
}

// one is somebody with a certificate, as the programs of the federation reach the registry, and as
// somebody who wrote a program of his own does.
type one struct {
	*etcd.Registry
	raw *clientv3.Client
	id  pki.Identity
	rig *rig

	creds *pki.Credentials
}

// says returns his word for a takeover by force.
func (o *one) says(is signed.Takeover) string {
	o.rig.Helper()
	word, err := signed.New(o.creds, nil, nil).Say(is)
	if err != nil {
		o.rig.Fatal(err)
	}
	return word
}

func (r *rig) as(organization, site string, part pki.Part, name string) *one {
	r.Helper()
	return r.with(r.credentials(organization, site, part, name))
}

func (r *rig) with(c *pki.Credentials) *one {
	r.Helper()
	tls := c.Client(pki.Expect{Part: pki.PartRegistry}, "127.0.0.1")
	reg, err := etcd.Open(etcd.Config{After: time.After, Endpoints: []string{"https://" + r.address}, Federation: "demo", TLS: tls,
		Seal: signed.New(c, nil, nil)})
	if err != nil {
		r.Fatal(err)
	}
	raw, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + r.address}, TLS: tls, DialTimeout: 10 * time.Second,
		Logger: zap.NewNop()})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _, _ = reg.Close(), raw.Close() })
	return &one{reg, raw, c.Identity(), r, c}
}

// world is a federation of three organizations with a site each, and a fourth that has none yet.
type world struct {
	*rig
	ga, gb, gc       *one // gateways
	oa, ob           *one // operators
	ca, cb           *one // CSI controllers
	pa, pb           *one // persons
	node, admin, old *one

	conceals bool // its charter says so
}

func must[T any](w *world) func(T, error) T {
	return func(v T, err error) T {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
		return v
	}
}

func siteOf(name, organization string) federation.Site {
	return federation.Site{Name: name, Organization: organization, Lends: []string{"A"}, WrapKey: []byte("key of " + name),
		Gateways: []federation.Gateway{{Name: "g" + name, Addr: "127.0.0.1:7001", Incarnation: "i"}}}
}

// newWorld is a world whose charter asks for signatures.
func newWorld(t testing.TB) *world {
	w := newWorldOfBefore(t)
	w.signed()
	return w
}

// newConcealing is a world whose charter asks for signatures, and shows an organization only what
// concerns it.
func newConcealing(t testing.TB) *world {
	w := newWorldOfBefore(t)
	w.conceals = true
	w.signed()
	return w
}

// newWorldOfBefore is a world without a charter.
func newWorldOfBefore(t testing.TB) *world {
	r := newRig(t)
	w := &world{rig: r, ga: r.as("A", "a", pki.PartGateway, "ga"), gb: r.as("B", "b", pki.PartGateway, "gb"),
		gc: r.as("C", "c", pki.PartGateway, "gc"),
		oa: r.as("A", "a", pki.PartOperator, "a-operator"), ob: r.as("B", "b", pki.PartOperator, "b-operator"),
		ca: r.as("A", "a", pki.PartController, "a-csi"), cb: r.as("B", "b", pki.PartController, "b-csi"),
		pa: r.as("A", "a", pki.PartPerson, "alice"), pb: r.as("B", "b", pki.PartPerson, "bob"),
		node: r.as("A", "a", pki.PartNode, "a-csi-node"), admin: r.as("A", "a", pki.PartAdministrator, "root"),
		old: r.as("A", "a", pki.PartUnknown, "ga")}
	ctx := t.Context()
	w.ok(w.ga.Register(ctx, siteOf("a", "A")))
	w.ok(w.gb.Register(ctx, siteOf("b", "B")))
	w.ok(w.gc.Register(ctx, siteOf("c", "C")))
	w.ok(w.oa.Register(ctx, federation.Site{Name: "a", Organization: "A", Region: "ra", Cluster: "uid-a"}))
	w.ok(w.ob.Register(ctx, federation.Site{Name: "b", Organization: "B", Region: "rb", Cluster: "uid-b"}))
	return w
}

// signed has the world's charter ask for signatures.
func (w *world) signed(more ...string) {
	w.Helper()
	root, err := w.rig.ca.Pair()
	w.ok(err)
	c := pki.Charter{Federation: "demo", Serial: 1, SignedSince: w.clock(), Conceals: w.conceals}
	for _, name := range append([]string{"A", "B", "C"}, more...) {
		c.Set(of(name, root.Cert))
	}
	s, err := w.rig.ca.SignCharter(c)
	w.ok(err)
	_, err = w.admin.PutCharter(w.Context(), 0, federation.Charter{Serial: 1, Signed: s})
	w.ok(err)
}

// plainly is what etcd has of a key.
func (r *rig) plainly(key string) []byte {
	r.Helper()
	res, err := r.plain.Get(r.Context(), prefix+key)
	r.ok(err)
	if len(res.Kvs) == 0 {
		return nil
	}
	return res.Kvs[0].Value
}
