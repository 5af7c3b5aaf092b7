// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-storage/weir/test/e2e/stage"
)

// PoolDir is the folder of the site's pool.
func (s *Site) PoolDir() string {
	return cmp.Or(s.bed.cfg.ZFS[s.Name()].Path, filepath.Join(s.Dir(), "pool"))
}

// GatewayName is the name of the site's gateway.
func (s *Site) GatewayName() string { return "g" + s.Name() }

// NFSAddr is where the site's gateway serves NFS.
func (s *Site) NFSAddr() string { return fmt.Sprintf("%s:%d", s.Addr(), nfsPort) }

// MetricsAddr is where the site's gateway shows its metrics.
func (s *Site) MetricsAddr() string { return fmt.Sprintf("%s:%d", s.Addr(), metricsPort) }

// configure writes the gateway's configuration file.
func (s *Site) configure(secret string) error {
	b := s.bed
	cache, size := cmp.Or(b.cfg.Cache, "256Mi"), cmp.Or(b.cfg.PoolSize[s.Name()], "4Gi")
	files := b.tls[s.GatewayName()]
	s.config = filepath.Join(s.Dir(), "gateway.yaml")
	zfs := ""
	if z, ok := b.cfg.ZFS[s.Name()]; ok {
		zfs = ", zfs: " + z.Config
	}
	text := fmt.Sprintf(`federation: %s
organization: org-%s
region: region-%s
site: %s
gateway: %s
listen: {grpc: "%s:%d", nfs: "%s:%d"}
registry: {endpoints: [%s]}
tls: {ca: %s, cert: %s, key: %s}
siteKey: %s
pool: {path: %s, size: %s%s}
cache: %s
store: {endpoint: "%s", bucket: weir, accessKey: %s, secretKey: %s}
promise: %s
lease: %s
aliveFor: 5s
metrics: {listen: "%s"}
lends: ["*"]
logLevel: info
`, Federation, s.Name(), s.Name(), s.Name(), s.GatewayName(), s.Addr(), grpcPort, s.Addr(), nfsPort, strings.Join(b.Etcd.Endpoints(), ", "),
		files.CA, files.Cert, files.Key, filepath.Join(s.Dir(),
			"site.key"), s.PoolDir(), size, zfs, cache, s.S3.Endpoint(), AccessKey, secret, b.cfg.Promise, b.cfg.Lease,
		s.MetricsAddr())
	return os.WriteFile(s.config, []byte(text), 0o600)
}

// Config is the path of the gateway's configuration file.
func (s *Site) Config() string { return s.config }

// StartGateway starts the gateway. It does not wait until the gateway serves.
func (s *Site) StartGateway() error {
	p, err := s.Start("gateway", s.Command(context.Background(), s.bed.weir, "gateway", "--config", s.config))
	if err != nil {
		return err
	}
	s.bed.mu.Lock()
	defer s.bed.mu.Unlock()
	s.gateway = p
	return nil
}

// TryGateway starts another gateway process at the site. It has the gateway's configuration with
// texts replaced: change has pairs of old and new. The caller owns the process.
func (s *Site) TryGateway(change ...string) (*stage.Proc, error) {
	text, err := os.ReadFile(s.config)
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(s.Dir(), "gateway-*.yaml")
	if err != nil {
		return nil, err
	}
	_, err = strings.NewReplacer(change...).WriteString(f, string(text))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return s.Start(strings.TrimSuffix(filepath.Base(f.Name()), ".yaml"),
		s.Command(context.Background(), s.bed.weir, "gateway", "--config", f.Name()))
}

// Gateway is the gateway's process.
func (s *Site) Gateway() *stage.Proc {
	s.bed.mu.Lock()
	defer s.bed.mu.Unlock()
	return s.gateway
}

// Guest boots a machine at the site; the names of guests are unique in the bed.
func (s *Site) Guest(ctx context.Context, name string) (*stage.Guest, error) {
	g, err := s.Site.Guest(ctx, name, 320)
	if err != nil {
		return nil, err
	}
	s.bed.mu.Lock()
	defer s.bed.mu.Unlock()
	s.guests[name] = g
	return g, nil
}

// Mount admits a guest of this site to a volume and mounts it there, at /mnt/VOLUME, from this
// site's gateway. It returns the folder.
func (s *Site) Mount(ctx context.Context, g *stage.Guest, volume string) (string, error) {
	if err := s.bed.Admit(ctx, volume, s.Name(), g.Addr()); err != nil {
		return "", err
	}
	dir := "/mnt/" + volume
	// The gateway gets the volume and the admission a little later.
	deadline := time.Now().Add(60 * time.Second)
	for {
		err := g.Mount(ctx, s.Addr(), "/"+volume, dir, stage.DefaultMountOptions)
		if err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return dir, err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// Kill ends everything at the site, as a power cut does: guests, gateway, store and registry
// member.
func (s *Site) Kill() {
	s.bed.mu.Lock()
	guests := s.guests
	s.guests = map[string]*stage.Guest{}
	s.bed.mu.Unlock()
	s.Gateway().Kill()
	s.S3.Proc().Kill()
	s.bed.Etcd.Member(s.Name()).Kill()
	for _, g := range guests {
		g.Kill()
	}
}

// Return starts again what Kill ended, except guests.
func (s *Site) Return(ctx context.Context) error {
	if err := s.bed.Etcd.Member(s.Name()).Start(); err != nil {
		return err
	}
	if err := s.S3.Start(); err != nil {
		return err
	}
	if err := s.S3.Ready(ctx); err != nil {
		return err
	}
	return s.StartGateway()
}
