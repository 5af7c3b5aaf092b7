// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"

	"github.com/weir-storage/weir/metrics"
	"github.com/weir-storage/weir/pki"
)

// Metrics is how a process shows what it measures.
type Metrics struct {
	Address     string // host:port of /metrics; empty: nowhere
	Credentials *pki.Credentials
	// Cluster authenticates and authorizes who reads, by a token of Kubernetes whose owner may get
	// the URL /metrics. nil: who shows a certificate of the federation may.
	Cluster *rest.Config
	From    prometheus.Gatherer
}

// What is measured may wait for a disk that hangs. Each reader is told so after a while. What waits
// for the disk meanwhile is no more than a few, however often they read.
const (
	metricsTime    = 30 * time.Second
	metricsReaders = 4
)

func (m Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.From, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError,
		Timeout: metricsTime, MaxRequestsInFlight: metricsReaders})
}

// Serve answers /metrics over TLS until ctx ends.
func (m Metrics) Serve(ctx context.Context) error {
	if m.Address == "" {
		return nil
	}
	handler := m.handler()
	config := m.Credentials.Server(pki.Expect{})
	if m.Cluster != nil {
		client, err := rest.HTTPClientFor(m.Cluster)
		if err != nil {
			return fmt.Errorf("serve metrics: %w", err)
		}
		filter, err := filters.WithAuthenticationAndAuthorization(m.Cluster, client)
		if err == nil {
			handler, err = filter(logr.Discard(), handler)
		}
		if err != nil {
			return fmt.Errorf("serve metrics: %w", err)
		}
		config = m.Credentials.ServerOfAnybody()
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", m.Address)
	if err != nil {
		return fmt.Errorf("serve metrics at %q: %w: give an address of this machine and a port that is free", m.Address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", handler)
	// Reading much may take a while, but a client that does not read gets no goroutine for ever.
	s := &http.Server{Handler: mux, TLSConfig: config, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)} // who is refused is told so
	stop := context.AfterFunc(ctx, func() { _ = s.Close() }) // an answer that is under way may end
	defer stop()
	if err := s.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics at %q: %w", m.Address, err)
	}
	return nil
}

// metricsAgain is how long Keep waits before it tries again.
const metricsAgain = 10 * time.Second

// Keep is Serve for a process that goes on without: it says why metrics are not shown, and tries
// again, until ctx ends.
func (m Metrics) Keep(ctx context.Context, pause func(context.Context, time.Duration) bool, log *slog.Logger) {
	for {
		err := m.Serve(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		log.Error("metrics are not shown; trying again", "error", err)
		if !pause(ctx, metricsAgain) {
			return
		}
	}
}

// Describe registers what all parts have: which process it is, when its certificate ends, which
// charter it goes by, and what Go and the system know of it.
func Describe(to prometheus.Registerer, part, version, name string, creds *pki.Credentials, also ...prometheus.Collector) error {
	id := creds.Identity()
	also = append(also, about{[]string{part, version, id.Federation, id.Organization, id.Site, name}, creds})
	var errs []error
	for _, c := range also {
		errs = append(errs, to.Register(c))
	}
	return errors.Join(errs...)
}

// NewRegistry returns a registry with what Go and the system know of the process.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// about collects which process it is.
type about struct {
	labels []string
	creds  *pki.Credentials
}

var infoDesc, endDesc, charterDesc = metrics.Info.Desc(), metrics.CertificateEnd.Desc(), metrics.CharterSerial.Desc()

// Describe implements prometheus.Collector.
func (a about) Describe(ch chan<- *prometheus.Desc) {
	ch <- infoDesc
	ch <- endDesc
	ch <- charterDesc
}

// Collect implements prometheus.Collector.
func (a about) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(infoDesc, prometheus.GaugeValue, 1, a.labels...)
	ch <- prometheus.MustNewConstMetric(endDesc, prometheus.GaugeValue, float64(a.creds.Expires().Unix()))
	charter, _ := a.creds.Charter()
	ch <- prometheus.MustNewConstMetric(charterDesc, prometheus.GaugeValue, float64(charter.Serial))
}
