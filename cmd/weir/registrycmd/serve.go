// SPDX-License-Identifier: Apache-2.0

package registrycmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/config"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
	"github.com/weir-storage/weir/federation/gatekeeper"
	"github.com/weir-storage/weir/metrics"
	"github.com/weir-storage/weir/pki"
)

// serving is what `weir registry serve` was asked for.
type serving struct {
	*access.Opener
	listen, etcd, health, metrics, logLevel, logFormat string
}

func serveCommand(sh *cli.Shell, o *access.Opener) *cobra.Command {
	s := serving{Opener: o}
	c := &cobra.Command{
		Use: "serve --ca FILE --cert FILE --key FILE", Short: "Stand beside a member of etcd, and say who may write what",
		Args: cli.Args(cobra.NoArgs),
		Long: "Answers the processes of the federation in place of a member of etcd that is on the same machine.\n" +
			"Each change is looked at: who asks, which the certificate says, what the change says, and what it\n" +
			"replaces. What is refused is in the log, with whose it was and why; so is what persons ask for.\n" +
			"While its etcd cannot be reached it does not listen, so that all go to another member.\n" +
			"The certificate is of part registry. docs/trust.md says who may do what.",
		Example: "  weir registry serve --listen 10.0.1.2:2379 --etcd 127.0.0.1:2378 \\\n" +
			"    --ca ca.crt --cert registry-1.crt --key registry-1.key",
		RunE: func(c *cobra.Command, _ []string) error {
			s.NoRegistry = true
			if err := s.Complete(sh.Getenv); err != nil {
				return err
			}
			return s.run(c.Context(), sh)
		},
	}
	f := c.Flags()
	f.StringVar(&s.listen, "listen", ":2379", "`ADDRESS` at which processes of the federation ask")
	f.StringVar(&s.etcd, "etcd", "127.0.0.1:2378", "`HOST:PORT` where etcd listens, at which nobody else should reach it")
	f.StringVar(&s.health, "health", "", "`ADDRESS` that answers /healthz and /readyz; empty: none")
	f.StringVar(&s.metrics, "metrics", "", "`ADDRESS` of /metrics, over TLS, for holders of a certificate; empty: none")
	f.StringVar(&s.logLevel, "log-level", "info", "`LEVEL`: debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "text", "`FORM` of the log: text or json")
	return c
}

func (s *serving) run(ctx context.Context, sh *cli.Shell) (err error) {
	log, err := config.NewLogger(sh.Err, s.logLevel, s.logFormat)
	if err != nil {
		return cli.Usage("--log-level, --log-format: %w", err)
	}
	creds, err := pki.LoadFiles(pki.Files{CA: s.CA, Cert: s.Cert, Key: s.Key, Log: log}, sh.Now)
	if err != nil {
		return err
	}
	id := creds.Identity()
	if id.Part != pki.PartRegistry {
		return fmt.Errorf("--cert %q: it is of part %q: issue one with `weir pki issue --part %s`", s.Cert, id.Part, pki.PartRegistry)
	}
	if _, _, err := net.SplitHostPort(s.etcd); err != nil {
		return cli.Usage("--etcd %q: %w: write HOST:PORT, such as 127.0.0.1:2378", s.etcd, err)
	}
	m := newMeter()
	g, err := gatekeeper.New(gatekeeper.Config{Federation: id.Federation, Etcd: s.etcd,
		EtcdTLS:     creds.ClientByIdentity(pki.Expect{Organizations: []string{id.Organization}, Site: id.Site, Part: pki.PartRegistry}),
		Credentials: creds, Now: sh.Now, Meter: m, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	all := process.NewRegistry()
	if err := process.Describe(all, "registry", sh.Version, id.Gateway, creds, m.took, m.refused, m.listening(g)); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	probes := make(chan error, 1)
	go func() {
		if s.health == "" {
			probes <- nil
			return
		}
		err := process.ServeHealth(ctx, s.health, g.Ready)
		cancel()
		probes <- err
	}()
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		if s.metrics != "" {
			process.Metrics{Address: s.metrics, Credentials: creds, From: all}.Keep(ctx, sh.Pause, log)
		}
	}()
	log.Info("gatekeeper starts", "federation", id.Federation, "organization", id.Organization, "site", id.Site, "name", id.Gateway,
		"etcd", s.etcd, "version", sh.Version)
	err = g.Serve(ctx, func(ctx context.Context) (net.Listener, error) {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", s.listen)
		if err != nil {
			return nil, fmt.Errorf("--listen %q: %w: give an address of this machine and a port that is free", s.listen, err)
		}
		return l, nil
	})
	cancel()
	<-shown
	return errors.Join(err, <-probes)
}

// meter implements gatekeeper.Meter.
type meter struct {
	took    *prometheus.HistogramVec
	refused *prometheus.CounterVec
}

var _ gatekeeper.Meter = (*meter)(nil)

func newMeter() *meter {
	return &meter{metrics.RegistryRequestSeconds.NewHistogram(), metrics.RegistryRefused.NewCounter()}
}

func (m *meter) Asked(method string, by pki.Part, outcome codes.Code, took time.Duration) {
	m.took.WithLabelValues(method, string(by), outcome.String()).Observe(took.Seconds())
}

func (m *meter) Refused(by pki.Part, kind string) { m.refused.WithLabelValues(string(by), kind).Inc() }

// listening tells whether the gatekeeper listens.
func (*meter) listening(g *gatekeeper.Gatekeeper) prometheus.Collector {
	d := metrics.RegistryListening
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: d.Name, Help: d.Help}, func() float64 {
		if g.Ready() != nil {
			return 0
		}
		return 1
	})
}
