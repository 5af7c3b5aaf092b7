// SPDX-License-Identifier: Apache-2.0

// Package storecmd has `weir store`: S3 in front of room that a site lends to other organizations.
package storecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/gatewaycmd"
	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/config"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
	"github.com/weir-storage/weir/exchange/lent"
	"github.com/weir-storage/weir/federation/etcd"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/metrics"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/store"
	storedir "github.com/weir-storage/weir/store/dir"
)

// serving is what `weir store` was asked for.
type serving struct {
	access.Connection
	listen, dir, folder, health, metrics, logLevel, logFormat string
	storeURL                                                  string
}

// Command is `weir store`.
func Command(sh *cli.Shell) *cobra.Command {
	s := serving{}
	c := &cobra.Command{
		Use: "store", Short: "Serve room that this site lends to other organizations", Args: cli.Args(cobra.NoArgs),
		Long: "Speaks S3 to gateways of organizations that this one has agreements with (`weir exchange`). Each\n" +
			"agreement has a bucket. A gateway gets its keys from here, on its certificate, and can fill what was\n" +
			"agreed on. The store goes on while the registry is away. The room is a folder, or the store of a\n" +
			"gateway's file (--config), in which it uses what is below lent/. The certificate is of part store.",
		Example: "  weir store --config gateway.yaml --cert store.crt --key store.key --dir /var/lib/weir-store",
		RunE:    func(c *cobra.Command, _ []string) error { return s.run(c.Context(), sh) },
	}
	s.Flags(c)
	f := c.Flags()
	f.StringVar(&s.listen, "listen", ":7005", "`ADDRESS` at which gateways ask")
	f.StringVar(&s.dir, "dir", "", "`FOLDER` of its own, for its key, what it counted and what was agreed on")
	f.StringVar(&s.folder, "folder", "", "`FOLDER` with the room; empty: the store of --config")
	f.StringVar(&s.storeURL, "store-endpoint", "", "`URL` of the store of --config, in place of what that says")
	f.StringVar(&s.health, "health", "", "`ADDRESS` that answers /healthz and /readyz; empty: none")
	f.StringVar(&s.metrics, "metrics", "", "`ADDRESS` of /metrics, over TLS, for holders of a certificate; empty: none")
	f.StringVar(&s.logLevel, "log-level", "info", "`LEVEL`: debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "text", "`FORM` of the log: text or json")
	return c
}

// below opens the store that has the room.
func (s *serving) below(ctx context.Context, log *slog.Logger) (store.Store, error) {
	if s.folder != "" {
		is, err := storedir.Open(s.folder)
		if err != nil {
			return nil, fmt.Errorf("--folder %q: %w: give a folder that this user can write", s.folder, err)
		}
		return is, nil
	}
	if s.Config == "" {
		return nil, cli.Usage("where the room is is not known: give --folder FOLDER, or --config FILE that has a store")
	}
	c, err := config.Read(s.Config)
	if err != nil {
		return nil, err
	}
	c.Store.Endpoint = cmp.Or(s.storeURL, c.Store.Endpoint)
	is, _, err := gatewaycmd.OpenStore(ctx, c.Store, log)
	if err == nil && is == nil {
		err = fmt.Errorf("--config %q: it has no store: give it one, or give --folder", s.Config)
	}
	return is, err
}

func (s *serving) run(ctx context.Context, sh *cli.Shell) (err error) {
	if err := s.Complete(sh.Getenv); err != nil {
		return err
	}
	if s.dir == "" {
		return cli.Usage("--dir is empty: give a folder that is this store's own")
	}
	log, err := config.NewLogger(sh.Err, s.logLevel, s.logFormat)
	if err != nil {
		return cli.Usage("--log-level, --log-format: %w", err)
	}
	creds, err := pki.LoadFiles(pki.Files{CA: s.CA, Cert: s.Cert, Key: s.Key, Log: log}, sh.Now)
	if err != nil {
		return err
	}
	id := creds.Identity()
	if id.Part != pki.PartStore {
		return fmt.Errorf("--cert %q: it is of part %q: issue one with `weir pki issue --part %s`", s.Cert, id.Part, pki.PartStore)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	if err := process.KeepCharter(creds, filepath.Join(s.dir, "charter.jws")); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	below, err := s.below(ctx, log)
	if err != nil {
		return err
	}
	registry, err := etcd.Open(etcd.Config{After: time.After, Endpoints: s.Registry, Federation: id.Federation,
		TLS: access.RegistryTLS(s.Registry, creds), Transport: access.Kept(creds), Log: log, Seal: signed.New(creds, log, nil)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, registry.Close()) }()
	refused := metrics.StoreRefused.NewCounter()
	st, err := lent.Open(ctx, lent.Config{Organization: id.Organization, Site: id.Site, By: id.String(), Store: below, Dir: s.dir,
		Credentials: creds, Registry: registry, Now: sh.Now, Pause: sh.Pause, Meter: meter{refused}, Log: log})
	if err != nil {
		return err
	}
	all := process.NewRegistry()
	if err := process.Describe(all, "store", sh.Version, id.Gateway, creds, refused, stored{st}); err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.listen)
	if err != nil {
		return fmt.Errorf("--listen %q: %w: give an address of this machine and a port that is free", s.listen, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	probes, shown := make(chan error, 1), make(chan struct{})
	go func() {
		var err error
		if s.health != "" {
			err = process.ServeHealth(ctx, s.health, func() error { return nil })
			cancel()
		}
		probes <- err
	}()
	go func() {
		defer close(shown)
		if s.metrics != "" {
			process.Metrics{Address: s.metrics, Credentials: creds, From: all}.Keep(ctx, sh.Pause, log)
		}
	}()
	log.Info("store starts", "federation", id.Federation, "organization", id.Organization, "site", id.Site, "name", id.Gateway,
		"address", l.Addr().String(), "version", sh.Version)
	err = st.Serve(ctx, l)
	cancel()
	<-shown
	return errors.Join(err, <-probes)
}

// meter implements lent.Meter.
type meter struct{ refused *prometheus.CounterVec }

// Refused implements lent.Meter.
func (m meter) Refused(op string) { m.refused.WithLabelValues(op).Inc() }

// stored collects how much is stored.
type stored struct{ s *lent.Store }

var agreementsDesc, storedDesc = metrics.StoreAgreements.Desc(), metrics.StoreStored.Desc()

// Describe implements prometheus.Collector.
func (s stored) Describe(ch chan<- *prometheus.Desc) {
	ch <- agreementsDesc
	ch <- storedDesc
}

// Collect implements prometheus.Collector.
func (s stored) Collect(ch chan<- prometheus.Metric) {
	n, bytes := s.s.Stored()
	ch <- prometheus.MustNewConstMetric(agreementsDesc, prometheus.GaugeValue, float64(n))
	ch <- prometheus.MustNewConstMetric(storedDesc, prometheus.GaugeValue, float64(bytes))
}
