// SPDX-License-Identifier: Apache-2.0

// Package bed puts Weir on a stage: at each site a member of a real etcd, a real S3 server, and a
// gateway process, all with mutual TLS, and guests whose kernels mount volumes over NFS. The
// end-to-end tests and the demonstration use it.
//
// The gateways are processes of the weir program, which is built from this source tree. The tests
// work on volumes with that program's commands, as a person does.
package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/test/e2e/stage"
)

// Federation is the name of every bed's federation.
const Federation = "demo"

// Ports of every gateway.
const (
	grpcPort = 7001
	nfsPort  = 2049

	metricsPort = 7086
)

// Config is what a bed is made of.
type Config struct {
	Sites    []string
	StateDir string    // keys, logs, pools and stores; of the caller, kept
	Progress io.Writer // hears what is going on
	Log      *slog.Logger

	Lasts    time.Duration     // of a test, at most; default 20 minutes
	Promise  string            // default 3s
	Lease    string            // of NFS clients, default 20s
	PoolSize map[string]string // by site; default 4Gi
	ZFS      map[string]ZFS    // by site; default: the pool is a folder
	Cache    string            // of blocks in memory; default 256Mi
}

// ZFS is a pool that is a dataset of ZFS.
type ZFS struct {
	Path   string // where it is mounted: outside of Config.StateDir, which is removed
	Config string // pool.zfs of the gateway's configuration
}

// Bed is a federation on a stage.
type Bed struct {
	Stage *stage.Stage
	Etcd  *stage.Etcd

	cfg   Config
	weir  string // program
	ca    *Authorities
	tls   map[string]stage.TLS // by gateway name; "admin" is the operator's
	mu    sync.Mutex
	sites map[string]*Site
	// owners are the sites whose persons made volumes, by the volume's name.
	owners map[string]string
}

// Site is a site of the federation. Its organization is "org-" and its name.
type Site struct {
	*stage.Site
	S3 *stage.S3

	bed     *Bed
	config  string
	gateway *stage.Proc
	guests  map[string]*stage.Guest
}

// Up prepares, builds and starts everything. Down ends it, also after an error.
func Up(ctx context.Context, cfg Config) (_ *Bed, err error) {
	if cfg.Promise == "" {
		cfg.Promise = "3s"
	}
	if cfg.Lease == "" {
		cfg.Lease = "20s"
	}
	b := &Bed{cfg: cfg, tls: map[string]stage.TLS{}, sites: map[string]*Site{}, owners: map[string]string{}}
	root, err := stage.ModuleRoot(".")
	if err != nil {
		return nil, err
	}
	bin, err := stage.Prepare(ctx, root, cfg.Progress)
	if err != nil {
		return nil, err
	}
	b.weir = filepath.Join(bin, "weir")
	b.say("building weir")
	// As `make build` compiles it, so that only the linker runs.
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", b.weir, "./cmd/weir")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	build.Dir, build.Stdout, build.Stderr = root, cfg.Progress, cfg.Progress
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build weir: %w", err)
	}
	b.say("bringing up the network: sites %s", strings.Join(cfg.Sites, ", "))
	b.Stage, err = stage.Up(ctx, stage.Config{Sites: cfg.Sites, StateDir: cfg.StateDir, Log: cfg.Log, BinDir: bin})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Stage.Down())
		}
	}()
	if b.ca, err = NewAuthorities(Federation, filepath.Join(b.Stage.Dir(), "pki")); err != nil {
		return nil, err
	}
	for _, name := range cfg.Sites {
		b.sites[name] = &Site{Site: b.Stage.Site(name), bed: b, guests: map[string]*stage.Guest{}}
		for who, part := range map[string]pki.Part{"g" + name: pki.PartGateway, "registry-" + name: pki.PartRegistry,
			"admin-" + name: pki.PartPerson} {
			if b.tls[who], err = b.Issue("org-"+name, name, part, who, b.Stage.Site(name).Addr()); err != nil {
				return nil, err
			}
		}
	}
	return b, b.start(ctx)
}

func (b *Bed) start(ctx context.Context) error {
	b.say("starting the registry: etcd and gatekeepers at %s", strings.Join(b.cfg.Sites, ", "))
	tls := map[string]stage.TLS{}
	var at []*stage.Site
	for _, name := range b.cfg.Sites {
		tls[name] = b.tls["registry-"+name]
		at = append(at, b.sites[name].Site)
	}
	var err error
	if b.Etcd, err = b.Stage.StartEtcd(ctx, Gatekeeper(Federation, b.weir), tls, at...); err != nil {
		return err
	}
	var all []string
	for _, name := range b.cfg.Sites {
		all = append(all, "org-"+name)
	}
	b.say("admitting organizations, each with its own authority: %s", strings.Join(all, ", "))
	if err := b.AdmitOrganizations(ctx, all...); err != nil {
		return err
	}
	b.say("starting a store and a gateway at each site")
	for _, name := range b.cfg.Sites {
		s := b.sites[name]
		if s.S3, err = b.Stage.StartS3(ctx, s.Site, AccessKey, SecretKey); err != nil {
			return err
		}
		if err := s.configure(SecretKey); err != nil {
			return err
		}
		if err := s.StartGateway(); err != nil {
			return err
		}
	}
	return nil
}

// AccessKey and SecretKey are those of every store.
const (
	AccessKey = "weir-demo"
	SecretKey = "weir-demo-secret"
)

// Gatekeeper stands in front of each member of the registry.
func Gatekeeper(federation, weir string) *stage.Front {
	name := pki.RegistryName(federation)
	return &stage.Front{Args: []string{"--client-cert-allowed-hostname=" + name, "--peer-cert-allowed-hostname=" + name},
		Command: func(site *stage.Site, files stage.TLS, listen, etcd string) *exec.Cmd {
			return site.Command(context.Background(), weir, "registry", "serve", "--listen", listen, "--etcd", etcd, "--ca", files.CA,
				"--cert", files.Cert, "--key", files.Key)
		}}
}

// Issue makes a certificate and returns its files. That of a new organization counts after
// AdmitOrganizations.
func (b *Bed) Issue(organization, site string, part pki.Part, gateway string, hosts ...string) (stage.TLS, error) {
	if part == pki.PartGateway { // a name that no DNS knows
		hosts = append(hosts, "gateway-"+site+".test")
	}
	return b.ca.Issue(organization, site, part, gateway, hosts...)
}

// AdmitOrganizations lets the authorities of organizations vouch for them.
func (b *Bed) AdmitOrganizations(ctx context.Context, organizations ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return b.ca.Admit(ctx, b.anywhere(), b.registry(), organizations...)
}

// Federation changes the charter, as `weir federation` does with these arguments.
func (b *Bed) Federation(ctx context.Context, args ...string) error {
	return b.ca.Change(ctx, b.anywhere(), b.registry(), args...)
}

// NewAuthority makes an organization's authority, which takes the place of the one that it had, and
// is to be admitted.
func (b *Bed) NewAuthority(organization string) error { return b.ca.NewAuthority(organization) }

// Former is the file of the authority that an organization had before NewAuthority.
func (b *Bed) Former(organization string) string { return b.ca.Former(organization) }

// anywhere runs the weir program at the first site.
func (b *Bed) anywhere() Program { return At(b.sites[b.cfg.Sites[0]].Site, b.weir) }

func (b *Bed) registry() string { return strings.Join(b.Etcd.Endpoints(), ",") }

// TLS are the files that a gateway or an operator of the bed uses.
func (b *Bed) TLS(name string) stage.TLS { return b.tls[name] }

// Site returns a site by name.
func (b *Bed) Site(name string) *Site { return b.sites[name] }

// Names are the names of the sites.
func (b *Bed) Names() []string { return b.cfg.Sites }

// Down ends everything; files below StateDir stay.
func (b *Bed) Down() error { return b.Stage.Down() }

func (b *Bed) say(format string, a ...any) {
	_, _ = fmt.Fprintf(b.cfg.Progress, "bed: "+format+"\n", a...) // progress is for people
}

// Program is the path of the weir program.
func (b *Bed) Program() string { return b.weir }
