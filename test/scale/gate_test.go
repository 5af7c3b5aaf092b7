// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"encoding/pem"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// gate passes requests on to the API server, with the rights of an administrator, and counts them.
// It can make clients list everything again, as the API server does when they ask for changes that
// it no longer remembers.
type gate struct {
	server *httptest.Server
	// pem is the certificate that clients trust.
	pem []byte

	mu      sync.Mutex
	reads   int
	writes  map[string]int // by method and path, but for those of who leads and of who reads metrics
	leads   int            // events of who leads
	lists   map[string]int // by path: how often everything was listed
	watches map[*ending]string
	expired map[string]bool // paths whose next watch is too late
}

func newGate(r *rig) *gate {
	r.t.Helper()
	g := &gate{writes: map[string]int{}, lists: map[string]int{}, watches: map[*ending]string{}, expired: map[string]bool{}}
	to, err := url.Parse(r.host)
	r.ok(err)
	transport, err := rest.TransportFor(r.cfg)
	r.ok(err)
	proxy := &httputil.ReverseProxy{Transport: transport, ErrorLog: log.New(io.Discard, "", 0), // it tells of watches that clients end
		Rewrite:        func(p *httputil.ProxyRequest) { p.SetURL(to) },
		ModifyResponse: g.follow,
	}
	g.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if g.tooLate(req) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusGone)
			_, _ = io.WriteString(w,
				`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}`)
			return
		}
		proxy.ServeHTTP(w, req)
	}))
	g.server.EnableHTTP2 = true
	g.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	g.server.StartTLS()
	g.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw})
	r.t.Cleanup(func() {
		g.server.CloseClientConnections()
		g.server.Close()
	})
	return g
}

// tooLate counts a request, and tells whether it is a watch that is to be refused.
func (g *gate) tooLate(req *http.Request) bool {
	q, path := req.URL.Query(), req.URL.Path
	g.mu.Lock()
	defer g.mu.Unlock()
	if req.Method != http.MethodGet {
		switch leads := "/namespaces/" + metav1.NamespaceSystem + "/"; { // the operator's namespace here
		case strings.Contains(path, leads+"leases"):
		case strings.HasSuffix(path, "/tokenreviews"), strings.HasSuffix(path, "/subjectaccessreviews"): // who reads metrics
		case strings.HasSuffix(path, leads+"events"):
			g.leads++
		default:
			g.writes[req.Method+" "+path]++
		}
		return false
	}
	g.reads++
	watch := q.Get("watch") == "true" || q.Get("watch") == "1"
	switch {
	case watch && q.Get("sendInitialEvents") != "true":
		late := g.expired[path]
		delete(g.expired, path)
		return late
	case watch, q.Has("limit"), q.Has("resourceVersion"):
		g.lists[path]++
	}
	return false
}

// follow keeps what can end a watch.
func (g *gate) follow(res *http.Response) error {
	if q := res.Request.URL.Query(); q.Get("watch") != "true" && q.Get("watch") != "1" {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &ending{ReadCloser: res.Body, ctx: ctx, cancel: cancel}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watches[e] = res.Request.URL.Path
	e.closed = func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.watches, e)
	}
	res.Body = e
	return nil
}

// ending is a body that can be ended, as if the API server had ended the watch.
type ending struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelFunc
	closed func()
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil && e.ctx.Err() != nil {
		err = io.EOF
	}
	return n, err
}

func (e *ending) Close() error {
	e.closed()
	return e.ReadCloser.Close()
}

// expire ends all watches, and has their clients list everything again. It returns the lists that
// there were of these.
func (g *gate) expire() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[string]int{}
	for e, path := range g.watches {
		g.expired[path] = true
		out[path] = g.lists[path]
		e.cancel()
		_ = e.ReadCloser.Close() // Read returns
	}
	return out
}

// listed tells whether each path was listed again since expire.
func (g *gate) listed(since map[string]int) (bool, string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for path, n := range since {
		if g.lists[path] == n {
			return false, path + " is not listed again"
		}
	}
	return true, ""
}

// forget begins to count writes anew.
func (g *gate) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writes = map[string]int{}
}

// read returns the number of reads since the last call.
func (g *gate) read() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.reads
	g.reads = 0
	return n
}

// peek returns the writes since forget, and the number of events of who leads since ever.
func (g *gate) peek() (writes map[string]int, leads int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.writes), g.leads
}
