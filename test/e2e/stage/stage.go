// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

// Config says what stage to build.
type Config struct {
	Sites    []string     // names, at most eight letters each and at most eight of them
	StateDir string       // logs and data; kept by Down. Empty: a temporary folder, removed by Down
	Log      *slog.Logger // progress; nil: none
	Router   string       // RouterAuto (empty), RouterHost or RouterUML
	BinDir   string       // folder of etcd and versitygw, as Prepare returns it; only StartEtcd and StartS3 need it
	IPTables bool         // guests need iptables, which only the kernel of this system has
}

// Stage is a set of sites and the network between them. Its methods may be called from several
// goroutines.
type Stage struct {
	prefix string
	dir    string
	run    string // short folder below /run, for sockets and the record
	bin    string
	log    *slog.Logger
	record record
	kernel kernel // of guests
	sites  map[string]*Site
	order  []*Site
	router router

	down    sync.Once
	downErr error
}

var siteName = regexp.MustCompile(`^[a-z][a-z0-9]{0,7}$`)

// Up builds a stage, in about three seconds. It first sweeps what stages of dead programs left.
// When ctx ends, also after Up has returned, the stage is taken down; call Down in any case and
// wait for it.
func Up(ctx context.Context, cfg Config) (*Stage, error) {
	if err := check(cfg); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if _, err := Sweep(); err != nil {
		return nil, err
	}
	s := &Stage{log: cfg.Log, bin: cfg.BinDir, sites: map[string]*Site{}}
	if err := s.claim(cfg); err != nil {
		return nil, fmt.Errorf("build stage: %w", err)
	}
	begin := time.Now()
	if err := s.build(ctx, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("build stage %s: %w", s.prefix, err), s.Down())
	}
	context.AfterFunc(ctx, func() { _ = s.Down() }) // the next caller of Down gets its error
	s.log.Info("stage is up", "prefix", s.prefix, "sites", cfg.Sites, "dir", s.dir, "took", time.Since(begin).Round(time.Millisecond))
	return s, nil
}

func check(cfg Config) error {
	if os.Geteuid() != 0 {
		return errors.New("build stage: network namespaces need root: run it with sudo")
	}
	if len(cfg.Sites) == 0 || len(cfg.Sites) > 8 {
		return fmt.Errorf("build stage: Config.Sites has %d names: give one to eight", len(cfg.Sites))
	}
	seen := map[string]bool{"router": true}
	for _, name := range cfg.Sites {
		if !siteName.MatchString(name) || seen[name] {
			return fmt.Errorf("build stage: Config.Sites has %q: names must be different, match %s and not be router", name, siteName)
		}
		seen[name] = true
	}
	return nil
}

// claim picks a prefix and writes the record of all that will need undoing.
func (s *Stage) claim(cfg Config) error {
	s.prefix = "w" + randomLetters(4)
	s.run = filepath.Join(runDir, s.prefix)
	s.dir = cfg.StateDir
	temporary := s.dir == ""
	if temporary {
		s.dir = filepath.Join(os.TempDir(), "weir-stage-"+s.prefix)
	}
	dir, err := filepath.Abs(s.dir)
	if err != nil {
		return err
	}
	s.dir = dir
	s.record, err = newRecord(s.prefix, s.dir, temporary)
	if err != nil {
		return err
	}
	s.record.Namespaces = append(s.record.Namespaces, s.prefix+"-router")
	for _, name := range cfg.Sites {
		s.record.Namespaces = append(s.record.Namespaces, s.prefix+"-"+name)
	}
	if err := s.record.write(); err != nil {
		return err
	}
	return os.MkdirAll(s.dir, 0o755)
}

func (s *Stage) build(ctx context.Context, cfg Config) error {
	routerNS := s.prefix + "-router"
	var namespaces []string
	for _, ns := range s.record.Namespaces {
		namespaces = append(namespaces, "netns add "+ns)
	}
	if err := ipBatch(ctx, "", namespaces...); err != nil {
		return err
	}
	for _, ns := range s.record.Namespaces {
		// Without IPv6 no packet is sent that nobody asked for.
		if err := inNamespace(ns, func() error {
			return errors.Join(writeSysctl("net/ipv6/conf/all/disable_ipv6"), writeSysctl("net/ipv6/conf/default/disable_ipv6"))
		}); err != nil {
			return err
		}
	}
	for i, name := range cfg.Sites {
		site := &Site{stage: s, name: name, index: i + 1, ns: s.prefix + "-" + name, guests: map[int]*Guest{}}
		if err := site.build(ctx, routerNS); err != nil {
			return fmt.Errorf("site %s: %w", name, err)
		}
		s.sites[name] = site
		s.order = append(s.order, site)
	}
	newest, err := findKernel(ctx)
	if err != nil {
		return err
	}
	s.kernel = newest
	if cfg.IPTables {
		s.kernel = system(newest.preload)
	}
	m := machine{name: routerNS, ns: routerNS, dir: filepath.Join(s.dir, "router"), mem: 128, run: s.run, kernel: newest}
	s.router, err = startRouter(ctx, cfg.Router, &m, len(cfg.Sites))
	return err
}

// build makes the site's network, inside its namespace.
func (s *Site) build(ctx context.Context, routerNS string) error {
	if err := os.MkdirAll(s.Dir(), 0o755); err != nil {
		return err
	}
	if err := ipBatch(ctx, "", fmt.Sprintf("link add wan0 netns %s type veth peer name %s netns %s",
		s.ns, routerPort(s.index), routerNS)); err != nil {
		return err
	}
	lines := []string{
		"link set lo up",
		"link add lan0 address " + siteMAC(s.index, firstHost) + " type bridge forward_delay 0 mcast_snooping 0",
		"link set wan0 master lan0 up",
		"link set lan0 up",
	}
	for host := firstHost; host <= lastHost; host++ {
		lines = append(lines, fmt.Sprintf("addr add %s/24 dev lan0", siteAddr(s.index, host)))
	}
	lines = append(lines,
		fmt.Sprintf("neigh replace %s lladdr %s dev lan0 nud permanent", siteAddr(s.index, routerHost), siteMAC(s.index, routerHost)),
		"route add default via "+siteAddr(s.index, routerHost))
	return ipBatch(ctx, s.ns, lines...)
}

func writeSysctl(name string) error {
	err := os.WriteFile("/proc/sys/"+name, []byte("1\n"), 0o644)
	if errors.Is(err, os.ErrNotExist) { // a kernel without IPv6
		return nil
	}
	return err
}

func randomLetters(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	for i := range b {
		b[i] = 'a' + b[i]%26
	}
	return string(b)
}

// Prefix begins the name of everything that the stage has on this machine.
func (s *Stage) Prefix() string { return s.prefix }

// Dir is the folder of logs and data.
func (s *Stage) Dir() string { return s.dir }

// Site returns a site of Config.Sites; it panics on any other name.
func (s *Stage) Site(name string) *Site {
	site, err := s.site(name)
	if err != nil {
		panic("stage: " + err.Error())
	}
	return site
}

// Sites returns all sites in the order of Config.Sites.
func (s *Stage) Sites() []*Site { return append([]*Site(nil), s.order...) }

func (s *Stage) site(name string) (*Site, error) {
	if site := s.sites[name]; site != nil {
		return site, nil
	}
	return nil, fmt.Errorf("no site %q on this stage", name)
}

// Down kills all processes and guests at once, without an orderly shutdown, and removes all that Up
// made. It may be called more than once; all calls wait for the first and return its error.
func (s *Stage) Down() error {
	s.down.Do(func() {
		s.downErr = s.record.clean()
		s.log.Info("stage is down", "prefix", s.prefix)
	})
	return s.downErr
}

// Leftovers lists what is still on the machine of this stage: nothing after Down.
func (s *Stage) Leftovers() []string { return s.record.leftovers() }
