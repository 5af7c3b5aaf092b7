// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// size is how large a gateway is.
type size struct{ goroutines, memory, heap, cache float64 }

// sizes reads the sizes of all gateways from their metrics.
func (r *run) sizes() map[string]size {
	r.T.Helper()
	out := map[string]size{}
	for _, site := range r.Bed.Names() {
		all := r.metrics(site)
		out[site] = size{all["go_goroutines"], all["process_resident_memory_bytes"],
			all["go_memstats_heap_inuse_bytes"], all["weir_cache_bytes"]}
		if out[site].goroutines == 0 || out[site].memory == 0 {
			r.T.Fatalf("the gateway of %s does not say how large it is", site)
		}
	}
	return out
}

// metrics reads the metrics without labels of a site's gateway.
func (r *run) metrics(site string) map[string]float64 {
	r.T.Helper()
	files := r.Bed.TLS("admin-" + site)
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	r.must(err)
	ca, err := os.ReadFile(files.CA)
	r.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	at := r.Bed.Site(site)
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: at.DialContext, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}}}
	res, err := c.Get("https://" + at.MetricsAddr() + "/metrics")
	r.must(err)
	defer func() { _ = res.Body.Close() }() // it was read
	out := map[string]float64{}
	for s := bufio.NewScanner(res.Body); s.Scan(); {
		name, value, ok := strings.Cut(s.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			out[name] = v
		}
	}
	return out
}

// flat checks that no gateway has grown. Those that were killed are as old as their last start.
func (r *run) flat(before map[string]size) {
	r.T.Helper()
	time.Sleep(10 * time.Second) // nobody writes any more
	for site, now := range r.sizes() {
		was := before[site]
		said := fmt.Sprintf("gateway of %s: %.0f goroutines, before %.0f; %.0f MiB, before %.0f; heap %.0f MiB, cached blocks %.0f",
			site, now.goroutines, was.goroutines, now.memory/(1<<20), was.memory/(1<<20), now.heap/(1<<20), now.cache/(1<<20))
		r.T.Log(said)
		if now.goroutines > 1.5*was.goroutines+20 || now.memory > 2*was.memory+256<<20 {
			r.T.Errorf("it grew: %s", said)
		}
	}
}
