// SPDX-License-Identifier: Apache-2.0

// Package gatewaycmd has `weir gateway`, the process that serves volumes at a site.
//
// The function run is its wiring: it makes the disks, the listeners and the connections to registry
// and store, and hands them with the shell's clocks and randomness to package gateway.
package gatewaycmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/config"
	"github.com/weir-storage/weir/cmd/weir/internal/kms"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/archive"
	"github.com/weir-storage/weir/federation/etcd"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/gateway"
	"github.com/weir-storage/weir/gateway/meters"
	"github.com/weir-storage/weir/gateway/traces"
	"github.com/weir-storage/weir/pki"
)

// Command is `weir gateway`.
func Command(sh *cli.Shell) *cobra.Command {
	var path string
	var over override
	c := &cobra.Command{
		Use: "gateway --config FILE", Short: "Run a site's gateway", Args: cli.Args(cobra.NoArgs),
		Long: "Runs a gateway until it gets SIGTERM or SIGINT. docs/reference/gateway-config.md describes the file.\n" +
			"A flag comes before what the file says.",
		Example: "  weir gateway --config /etc/weir/weir.yaml",
		RunE: func(c *cobra.Command, _ []string) error {
			if path == "" {
				return cli.Usage("gateway: no --config: give the path of its configuration file")
			}
			return run(c.Context(), sh, path, over)
		},
	}
	c.Flags().StringVar(&path, "config", sh.Getenv("WEIR_CONFIG"), "configuration `FILE` [WEIR_CONFIG]")
	over.flags(c)
	c.AddCommand(sealedKeyCommand(sh))
	return c
}

// override has values that are known only where the gateway starts, such as addresses of a cluster.
type override struct {
	registry                                      []string
	advertiseGRPC, advertiseNFS, storeURL, health string
}

func (o *override) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringSliceVar(&o.registry, "registry", nil, "`URL`s of the registry's members (registry.endpoints)")
	f.StringVar(&o.advertiseGRPC, "advertise-grpc", "", "`ADDRESS` where other gateways reach this one (advertise.grpc)")
	f.StringVar(&o.advertiseNFS, "advertise-nfs", "", "`ADDRESS` where clients reach it (advertise.nfs)")
	f.StringVar(&o.storeURL, "store-endpoint", "", "`URL` of the store (store.endpoint)")
	f.StringVar(&o.health, "health", "", "`ADDRESS` that answers /healthz and /readyz (health)")
}

func (o *override) apply(c *config.Config) {
	if len(o.registry) > 0 {
		c.Registry.Endpoints = o.registry
	}
	c.Advertise.GRPC = cmp.Or(o.advertiseGRPC, c.Advertise.GRPC)
	c.Advertise.NFS = cmp.Or(o.advertiseNFS, c.Advertise.NFS)
	c.Store.Endpoint = cmp.Or(o.storeURL, c.Store.Endpoint)
	c.Health = cmp.Or(o.health, c.Health)
}

// run makes the parts of a gateway, runs it until ctx ends, and closes them.
func run(ctx context.Context, sh *cli.Shell, path string, over override) (err error) {
	c, err := config.Read(path)
	if err != nil {
		return err
	}
	over.apply(&c)
	c.SetDefaults()
	if err := c.Check(); err != nil {
		return config.InFile(path, err)
	}
	recent := process.NewRecent(recentLog)
	logger, err := config.NewLogger(io.MultiWriter(sh.Err, recent), c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}

	if sh.Getenv("GOMEMLIMIT") == "" { // else a person has said what the runtime is to keep to
		defer process.LimitMemory(ctx, int64(c.Memory), sh.Pause, logger)()
	}
	health := new(gateway.Health)
	ctx, end := watchHealth(ctx, c.Health, health)
	defer func() { err = errors.Join(err, end()) }()
	creds, err := Credentials(&c, sh.Now, logger)
	if err != nil {
		return config.InFile(path, err)
	}
	objects, info, err := OpenStore(ctx, c.Store, logger)
	if err != nil {
		return config.InFile(path, err)
	}
	measured := meters.New(sh.Now)
	all := process.NewRegistry()
	if err := process.Describe(all, "gateway", sh.Version, c.Gateway, creds, measured); err != nil {
		return err
	}
	endMetrics, err := showMetrics(ctx, sh, &c, creds, all, logger)
	if err != nil {
		return config.InFile(path, err)
	}
	defer endMetrics()
	tracer, endTraces, err := openTraces(ctx, sh, &c, logger)
	if err != nil {
		return config.InFile(path, err)
	}
	defer endTraces()
	opened, err := openPools(ctx, &c, sh.Random, logger)
	defer func() { err = errors.Join(err, closePools(opened)) }()
	if err != nil {
		return err
	}
	if err := process.KeepCharter(creds, filepath.Join(c.Pool.Path, charterName)); err != nil {
		return fmt.Errorf("pool.path: %w", err)
	}
	file := guardFile(filepath.Join(c.Pool.Path, guardName))
	kept, err := archive.Open(vfs.Default, filepath.Join(c.Pool.Path, archiveName), sh.Now)
	if err != nil {
		return fmt.Errorf("pool.path: %w", err)
	}
	defer func() { err = errors.Join(err, kept.Close()) }()
	guard, err := federation.NewGuard(file.load, file.save, kept)
	if err != nil {
		return err
	}
	registry, err := etcd.Open(etcd.Config{After: time.After, Endpoints: c.Registry.Endpoints, Federation: c.Federation,
		TLS: access.RegistryTLS(c.Registry.Endpoints, creds), Transport: access.Kept(creds), Guard: guard, Log: logger,
		Seal: signed.New(creds, logger, func(k federation.Kind) { measured.Forged(k, 1) }), Observe: measured.Registry})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, registry.Close()) }()
	longest := promiseFile(filepath.Join(c.Pool.Path, promiseName))
	former, err := longest.begin(time.Duration(c.Promise))
	if err != nil {
		return fmt.Errorf("pool.path: %w", err)
	}
	source := keySource{path: c.SiteKey, from: c.Keys.KMS.From, logger: logger}
	if e := c.Keys.KMS.Endpoint; e != "" {
		if source.plugin, err = kms.New(e); err != nil {
			return config.InFile(path, fmt.Errorf("keys.kms.endpoint: %w", err))
		}
		defer func() { err = errors.Join(err, source.plugin.Close()) }()
	}
	key, err := siteKey(ctx, source, c.Site, registry, sh.Pause)
	if ctx.Err() != nil {
		return nil // the process was asked to end while it waited for the registry
	}
	if err != nil {
		return config.InFile(path, err)
	}

	grpcListener, nfsListener, err := listen(ctx, &c)
	if err != nil {
		return config.InFile(path, err)
	}
	// The servers close their listeners. This closes them when no server has begun.
	defer func() { _, _ = grpcListener.Close(), nfsListener.Close() }()

	logger.Info("gateway starts", "federation", c.Federation, "site", c.Site, "gateway", c.Gateway,
		"grpc", c.Advertise.GRPC, "nfs", c.Advertise.NFS, "incarnation", opened[0].Incarnation(),
		"boot", opened[0].Boot(), "store", info.Endpoint, "version", sh.Version)
	cfg := gateway.Config{
		Federation: c.Federation, Organization: c.Organization, Region: c.Region, Site: c.Site, Name: c.Gateway,
		Labels: c.Labels, Capacity: c.Capacity, Lends: c.Lends, Health: health, Meters: measured,
		Addr: c.Advertise.GRPC, NFSAddr: c.Advertise.NFS, GRPC: grpcListener, NFS: nfsListener,
		Registry: registry, Pools: opened, FS: vfs.Default, StateDir: c.StateDir,
		Store: objects, StoreInfo: info, Credentials: creds, SiteKey: key,
		Promise: time.Duration(c.Promise), Former: former, Heartbeat: time.Duration(c.Heartbeat), Lease: time.Duration(c.Lease),
		AliveFor:   time.Duration(c.AliveFor),
		CacheBytes: int64(c.Cache), Memory: int64(c.ClientMemory),
		Clock: sh.Boottime, Timers: clockwork.NewRealClock(), Now: sh.Now, Rand: sh.Random, Logger: logger,
		Slow: time.Duration(*c.SlowOperation), Tracer: tracer, Diagnostics: diagnostics(&c, sh.Version, recent, all),
	}
	settled := make(chan struct{})
	settling, stop := context.WithCancel(ctx)
	go func() {
		defer close(settled)
		longest.settle(settling, former, cfg.Promise, sh.Pause, logger)
	}()
	defer func() { stop(); <-settled }()
	if source.plugin != nil {
		sealing, stop := context.WithCancel(ctx)
		sealed := make(chan struct{})
		go func() {
			defer close(sealed)
			source.keep(sealing, key, sh.Pause)
		}()
		defer func() { stop(); <-sealed }()
	}
	if err := gateway.Run(ctx, cfg); err != nil {
		return err
	}
	logger.Info("gateway ended", "gateway", c.Gateway)
	return nil
}

// watchHealth answers probes from now on, also while the gateway waits for the registry. It ends
// the returned context when it cannot answer them. end stops it and returns its error.
func watchHealth(ctx context.Context, address string, health *gateway.Health) (_ context.Context, end func() error) {
	if address == "" {
		return ctx, func() error { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		served <- process.ServeHealth(ctx, address, health.Ready)
		cancel()
	}()
	return ctx, func() error {
		cancel()
		return <-served
	}
}

// showMetrics shows what is measured, until end. Clients are served also when it cannot.
func showMetrics(ctx context.Context, sh *cli.Shell, c *config.Config, creds *pki.Credentials, all *prometheus.Registry,
	log *slog.Logger) (end func(), err error) {
	if c.Metrics.Listen == "" {
		return func() {}, nil
	}
	m := process.Metrics{Address: c.Metrics.Listen, Credentials: creds}
	if c.Metrics.Access == config.ByKubernetes {
		if m.Cluster, err = process.Cluster(""); err != nil {
			return nil, fmt.Errorf("metrics.access: %q: %w", c.Metrics.Access, err)
		}
	}
	m.From = all
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Keep(ctx, sh.Pause, log)
	}()
	return func() { stop(); <-done }, nil
}

// openTraces returns what follows requests; nil: nothing does. end sends the rest.
func openTraces(ctx context.Context, sh *cli.Shell, c *config.Config, log *slog.Logger) (_ gateway.Tracer, end func(), err error) {
	if c.Tracing.Endpoint == "" {
		return nil, func() {}, nil
	}
	t, err := traces.Open(ctx, traces.Config{Endpoint: c.Tracing.Endpoint, Share: *c.Tracing.Share, Federation: c.Federation,
		Organization: c.Organization, Site: c.Site, Gateway: c.Gateway, Version: sh.Version, Log: log, Now: sh.Now})
	if err != nil {
		return nil, nil, fmt.Errorf("tracing: %w", err)
	}
	return t, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := t.Close(last); err != nil {
			log.Warn("the last traces are lost", "error", err)
		}
	}, nil
}

// Credentials loads the certificate that c names, and checks that it is this gateway's. They follow
// later changes of the files, which log reports. log may be nil.
func Credentials(c *config.Config, now func() time.Time, log *slog.Logger) (*pki.Credentials, error) {
	creds, err := pki.LoadFiles(pki.Files{CA: c.TLS.CA, Cert: c.TLS.Cert, Key: c.TLS.Key, Log: log}, now)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	id := creds.Identity()
	var p config.Problems
	for _, f := range [][3]string{
		{"federation", c.Federation, id.Federation}, {"organization", c.Organization, id.Organization},
		{"site", c.Site, id.Site}, {"gateway", c.Gateway, id.Gateway},
	} {
		if f[1] != f[2] {
			p.Add(f[0], f[1], "the certificate tls.cert (%s) says %q: correct one of the two, or issue a certificate for this gateway",
				c.TLS.Cert, f[2])
		}
	}
	return creds, errors.Join(p...)
}

// listen opens both listeners, and fills in ports that the system chose.
func listen(ctx context.Context, c *config.Config) (grpc, nfs net.Listener, err error) {
	var lc net.ListenConfig
	open := func(field, addr string, public *string) (net.Listener, error) {
		l, err := lc.Listen(ctx, "tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w: give an address of this machine and a port that is free and allowed",
				field, addr, err)
		}
		if _, port, _ := net.SplitHostPort(*public); port == "0" {
			*public = l.Addr().String()
		}
		return l, nil
	}
	if grpc, err = open("listen.grpc", c.Listen.GRPC, &c.Advertise.GRPC); err != nil {
		return nil, nil, err
	}
	if nfs, err = open("listen.nfs", c.Listen.NFS, &c.Advertise.NFS); err != nil {
		return nil, nil, errors.Join(err, grpc.Close())
	}
	return grpc, nfs, nil
}
