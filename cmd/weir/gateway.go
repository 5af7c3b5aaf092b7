// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/jonboulle/clockwork"
	"github.com/spf13/cobra"

	pooldir "github.com/weir-storage/weir/cachepool/dir"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/etcd"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/gateway"
	"github.com/weir-storage/weir/pki"
)

func (sh *shell) gatewayCommand() *cobra.Command {
	var path string
	var over override
	c := &cobra.Command{
		Use: "gateway --config FILE", Short: "Run a site's gateway", Args: args(cobra.NoArgs),
		Long: "Runs a gateway until it is asked to end (SIGTERM, SIGINT). docs/reference/gateway-config.md describes the file. What a flag says comes before it.",
		RunE: func(c *cobra.Command, _ []string) error {
			if path == "" {
				return usage("gateway: no --config: give the path of its configuration file")
			}
			return sh.runGateway(c.Context(), path, over)
		},
	}
	c.Flags().StringVar(&path, "config", sh.getenv("WEIR_CONFIG"), "configuration `FILE` [WEIR_CONFIG]")
	over.flags(c)
	return c
}

// override has what is known only where the gateway is started, such as a cluster's addresses.
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

func (o *override) apply(c *Config) {
	if len(o.registry) > 0 {
		c.Registry.Endpoints = o.registry
	}
	c.Advertise.GRPC = cmp.Or(o.advertiseGRPC, c.Advertise.GRPC)
	c.Advertise.NFS = cmp.Or(o.advertiseNFS, c.Advertise.NFS)
	c.Store.Endpoint = cmp.Or(o.storeURL, c.Store.Endpoint)
	c.Health = cmp.Or(o.health, c.Health)
}

// runGateway builds what a gateway is made of, runs it until ctx ends, and gives all back.
func (sh *shell) runGateway(ctx context.Context, path string, over override) (err error) {
	c, err := readConfig(path)
	if err != nil {
		return err
	}
	over.apply(&c)
	c.setDefaults()
	if err := c.check(); err != nil {
		return inFile(path, err)
	}
	level, err := c.level()
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(sh.err, &slog.HandlerOptions{Level: level}))

	health := new(gateway.Health)
	ctx, end := watchHealth(ctx, c.Health, health)
	defer func() { err = errors.Join(err, end()) }()
	creds, err := c.credentials(sh.now, logger)
	if err != nil {
		return inFile(path, err)
	}
	objects, info, err := openStore(ctx, c.Store, logger)
	if err != nil {
		return inFile(path, err)
	}
	pool, err := pooldir.Open(pooldir.Config{Path: c.Pool.Path, Gateway: c.Gateway, Limit: int64(c.Pool.Size), Random: sh.random, Log: logger})
	if err != nil {
		return fmt.Errorf("pool.path: %w", err)
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	file := guardFile(filepath.Join(c.Pool.Path, guardName))
	guard, err := federation.NewGuard(file.load, file.save)
	if err != nil {
		return err
	}
	registry, err := etcd.Open(etcd.Config{After: time.After, Endpoints: c.Registry.Endpoints, Federation: c.Federation,
		TLS: registryTLS(c.Registry.Endpoints, creds), Guard: guard, Log: logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, registry.Close()) }()
	key, err := siteKey(ctx, c.SiteKey, c.Site, registry, logger)
	if ctx.Err() != nil {
		return nil // asked to end while it waited for the registry
	}
	if err != nil {
		return inFile(path, err)
	}

	grpcListener, nfsListener, err := c.open(ctx)
	if err != nil {
		return inFile(path, err)
	}
	// The servers close them; when none began, nobody else does.
	defer func() { _, _ = grpcListener.Close(), nfsListener.Close() }()

	logger.Info("gateway starts", "federation", c.Federation, "site", c.Site, "gateway", c.Gateway, "grpc", c.Advertise.GRPC, "nfs", c.Advertise.NFS,
		"incarnation", pool.Incarnation(), "boot", pool.Boot(), "store", info.Endpoint, "version", versionOf())
	cfg := gateway.Config{
		Federation: c.Federation, Organization: c.Organization, Region: c.Region, Site: c.Site, Name: c.Gateway, Labels: c.Labels, Capacity: c.Capacity, Health: health,
		Addr: c.Advertise.GRPC, NFSAddr: c.Advertise.NFS, GRPC: grpcListener, NFS: nfsListener,
		Registry: registry, Pool: pool, FS: vfs.Default, StateDir: c.StateDir, Store: objects, StoreInfo: info, Credentials: creds, SiteKey: key,
		Promise: time.Duration(c.Promise), Heartbeat: time.Duration(c.Heartbeat), Lease: time.Duration(c.Lease), AliveFor: time.Duration(c.AliveFor),
		CacheBytes: int64(c.Cache), Clock: boottime, Timers: clockwork.NewRealClock(), Now: sh.now, Rand: sh.random, Logger: logger,
	}
	if err := gateway.Run(ctx, cfg); err != nil {
		return err
	}
	logger.Info("gateway ended", "gateway", c.Gateway)
	return nil
}

// watchHealth answers probes from now on, also while the gateway waits for the registry. The context ends when it can not. end returns
// why, once it has ended.
func watchHealth(ctx context.Context, address string, health *gateway.Health) (_ context.Context, end func() error) {
	if address == "" {
		return ctx, func() error { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		served <- serveHealth(ctx, address, health.Ready)
		cancel()
	}()
	return ctx, func() error {
		cancel()
		return <-served
	}
}

// credentials loads the certificate and makes sure that it is this gateway's. log, which may be nil, hears of later changes of the files.
func (c *Config) credentials(now func() time.Time, log *slog.Logger) (*pki.Credentials, error) {
	creds, err := pki.LoadFiles(pki.Files{CA: c.TLS.CA, Cert: c.TLS.Cert, Key: c.TLS.Key, Log: log}, now)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	id := creds.Identity()
	var p problems
	for _, f := range [][3]string{
		{"federation", c.Federation, id.Federation}, {"organization", c.Organization, id.Organization},
		{"site", c.Site, id.Site}, {"gateway", c.Gateway, id.Gateway},
	} {
		if f[1] != f[2] {
			p.add(f[0], f[1], "the certificate tls.cert (%s) says %q: correct one of the two, or issue a certificate for this gateway", c.TLS.Cert, f[2])
		}
	}
	return creds, errors.Join(p...)
}

// registryTLS is how to talk to the registry: with the federation's certificates, unless its URLs are http. A member's certificate has the
// address of one of them.
func registryTLS(endpoints []string, creds *pki.Credentials) *tls.Config {
	if len(endpoints) > 0 && strings.HasPrefix(endpoints[0], "http:") {
		return nil
	}
	var hosts []string
	for _, e := range endpoints {
		if u, err := url.Parse(e); err == nil { // else etcd.Open refuses it
			hosts = append(hosts, u.Hostname())
		}
	}
	return creds.Client(pki.Expect{}, hosts...)
}

// open opens the listeners and fills in ports that the system chose.
func (c *Config) open(ctx context.Context) (grpc, nfs net.Listener, err error) {
	var lc net.ListenConfig
	open := func(field, addr string, public *string) (net.Listener, error) {
		l, err := lc.Listen(ctx, "tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w: give an address of this machine and a port that is free and allowed", field, addr, err)
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

// registryPause is between attempts to reach the registry at a site's first start.
const registryPause = 2 * time.Second

// siteKey reads the site's key, or makes it when the registry says that the site has none yet: a second key would
// make what is wrapped for the first unreadable.
func siteKey(ctx context.Context, path, site string, registry federation.Sites, logger *slog.Logger) (keyring.SiteKey, error) {
	k, missing := readSiteKey(path)
	if missing != nil && !errors.Is(missing, fs.ErrNotExist) {
		return k, missing
	}
	for {
		known, err := knownKey(ctx, registry, site)
		switch {
		case err == nil && missing == nil:
			return k, checkSiteKey(path, site, k.Public(), known)
		case err == nil && known != nil:
			return k, fmt.Errorf("siteKey: %q: there is no such file, and site %s has a key already: copy its file here, from another gateway of the site or a backup; "+
				"what is wrapped for the old key can not be read with a new one", path, site)
		case err == nil:
			logger.Info("site gets its key", "site", site, "siteKey", path)
			return makeSiteKey(path)
		case !errors.Is(err, federation.ErrUnavailable):
			return k, err
		case missing == nil:
			logger.Warn("registry does not answer; the gateway starts with what it has", "error", err)
			return k, nil
		}
		logger.Warn("registry does not answer; a site's first start waits for it", "site", site, "error", err)
		if !pause(ctx, registryPause) {
			return k, ctx.Err()
		}
	}
}

// knownKey is the public key that the site registered; nil when there is none.
func knownKey(ctx context.Context, registry federation.Sites, site string) ([]byte, error) {
	all, err := registry.Sites(ctx)
	for _, s := range all {
		if s.Site.Name == site && len(s.Site.WrapKey) > 0 {
			return s.Site.WrapKey, err
		}
	}
	return nil, err
}

func checkSiteKey(path, site string, mine, known []byte) error {
	if known == nil || string(known) == string(mine) {
		return nil
	}
	return fmt.Errorf("siteKey: %q: it is not the key that site %s registered: give the site's own file, which all its gateways share, or choose another name for a new site", path, site)
}

// pause waits for d; it is false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
