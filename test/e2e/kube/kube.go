// SPDX-License-Identifier: Apache-2.0

// Package kube runs a real Kubernetes cluster at each site of a stage: API server with its etcd,
// controller manager, scheduler, and nodes with containerd, kubelet and kube-proxy, all built from
// source by hack/tools. Nothing is downloaded at run time: this package makes the images, and nodes
// pull them from a registry on the stage.
//
// # What is there
//
//	site a, namespace <prefix>-a, nodes 10.77.1.0/24, pods 10.101.0.0/16, Services 10.201.0.0/16
//	  a-host    10.77.1.2    pods 10.101.1.0/24   control processes; containers on this kernel
//	  a-guest   10.77.1.10   pods 10.101.2.0/24   User-Mode-Linux: a kernel with an NFS client
//	site b: the same with 10.77.2, 10.102, 10.202; and so on in the order of Config.Sites
//
// The host node is a set of private mount and pid namespaces in the site's network namespace; its
// pid 1 is node/host.sh. A guest has a disk, which survives a restart of the guest. Nodes carry the
// label e2e.weir.dev/node=host or =guest. The clusters have no DNS and no controller for load
// balancers.
//
// The registry is in this process and listens at each site, at AddrN(7) and port 5000, without TLS.
// Images are called weir.test/NAME; each node's containerd is configured with the registry's
// address. A blob is read directly from its program or archive: there is no copy.
//
// Nodes of a site route packets between their pods. A packet that leaves a site carries its node's
// address, so sites reach each other at node addresses: with hostNetwork, a node port or an
// external IP. kube-proxy uses nftables on hosts, and iptables in guests, whose kernel has no
// address translation in nftables.
//
// # Rules
//
//  1. A process of a host node is in the node's pid namespace, or dies with the stage's namespaces:
//     killing pid 1 is a power cut of the node.
//  2. Mounts are in the node's own mount namespace and disappear with it. What a node writes to
//     /var/lib and /var/log is below the state folder.
//  3. Outside its namespaces a cluster uses the pods' cgroups, in
//     weir-e2e-<prefix>-<site> below the cgroup mount. Down removes them; Up removes those of
//     stages that are gone. A node with ZFS uses three loop devices, which go with its processes.
//     No kernel setting is changed that would reach beyond the node's namespaces (see
//     node/host.sh).
//  4. These ports of a site's nodes are in use: 6443, 10250, 10256 at the node addresses; 12379,
//     12380, 10248, 10249, 10257, 10259 at 127.0.0.1; 5000 at AddrN(7).
package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/weir-storage/weir/test/e2e/stage"
)

// Config says what to build.
type Config struct {
	Sites       []string     // as in stage.Config
	Guests      []string     // sites that have a guest as a second node; nil: the first two
	GuestMemory int          // of each guest, in MiB; 0: 768
	ZFS         []string     // sites whose host node has ZFS, and disks for it: see Disks
	StateDir    string       // logs, images and disks; of the caller, kept. Not below /var/lib or /var/log
	Progress    io.Writer    // gets a line for each step of the work
	Log         *slog.Logger // of the stage
}

// Clusters are the sites' clusters. Its methods may be called from several goroutines.
type Clusters struct {
	Stage *stage.Stage

	cfg    Config
	root   string // source tree
	bin    string // programs of hack/tools
	sites  map[string]*Site
	images *images  // the registry
	made   sync.Map // name: func() (v1.Image, error), which makes it once
}

// Prepare installs and builds what clusters need and lack, and returns the source tree and the
// folder of programs. The first call takes about 25 minutes.
func Prepare(ctx context.Context, w io.Writer) (root, bin string, err error) {
	if root, err = stage.ModuleRoot("."); err != nil {
		return "", "", err
	}
	if bin, err = stage.Prepare(ctx, root, w); err != nil {
		return "", "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "hack/tools/build"), "kube", "node", "csi", "provisioner", "snapshotter",
		"helm")
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Run(); err != nil {
		return "", "", fmt.Errorf("build programs of Kubernetes: %w", err)
	}
	return root, bin, nil
}

// Up prepares, builds and starts everything. It returns when all nodes are ready and the registry
// has the images pause and app. All processes end when ctx ends, also after Up has returned; call
// Down in any case.
func Up(ctx context.Context, cfg Config) (_ *Clusters, err error) {
	if cfg.Guests == nil {
		cfg.Guests = cfg.Sites[:min(2, len(cfg.Sites))]
	}
	for _, list := range []struct {
		field string
		sites []string
	}{{"Guests", cfg.Guests}, {"ZFS", cfg.ZFS}} {
		for _, name := range list.sites {
			if !slices.Contains(cfg.Sites, name) {
				return nil, fmt.Errorf("start clusters: Config.%s has %q, which is not in Config.Sites %q", list.field, name, cfg.Sites)
			}
		}
	}
	if cfg.GuestMemory == 0 {
		cfg.GuestMemory = 768
	}
	c := &Clusters{cfg: cfg, sites: map[string]*Site{}}
	if c.root, c.bin, err = Prepare(ctx, cfg.Progress); err != nil {
		return nil, err
	}
	begin := time.Now()
	c.Stage, err = stage.Up(ctx, stage.Config{Sites: cfg.Sites, StateDir: cfg.StateDir, Log: cfg.Log, BinDir: c.bin, IPTables: true})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Down())
		}
	}()
	if err := sweepGroups(); err != nil {
		return nil, err
	}
	for i, name := range cfg.Sites {
		c.sites[name] = newSite(c, i+1, name, slices.Contains(cfg.Guests, name), slices.Contains(cfg.ZFS, name))
	}
	if err := c.serveImages(); err != nil {
		return nil, err
	}
	provided := make(chan error, 1)
	go func() { provided <- c.Provide(ctx, ImageName("pause"), ImageName("app")) }()
	if err := errors.Join(c.each(func(s *Site) error { return s.start(ctx) }), <-provided); err != nil {
		return nil, err
	}
	c.say("clusters at %v are up after %v", cfg.Sites, time.Since(begin).Round(100*time.Millisecond))
	return c, nil
}

// Site returns a site of Config.Sites; it panics on any other name.
func (c *Clusters) Site(name string) *Site {
	s := c.sites[name]
	if s == nil {
		panic(fmt.Sprintf("kube: no site %q", name))
	}
	return s
}

// Names are the names of the sites.
func (c *Clusters) Names() []string { return c.cfg.Sites }

// Root is the source tree.
func (c *Clusters) Root() string { return c.root }

// Bin is the folder of the programs of hack/tools: kubectl, helm and others.
func (c *Clusters) Bin() string { return c.bin }

// each calls fn for all sites at the same time.
func (c *Clusters) each(fn func(*Site) error) error {
	errs := make([]error, len(c.cfg.Sites))
	var wg sync.WaitGroup
	for i, name := range c.cfg.Sites {
		if s := c.sites[name]; s != nil {
			wg.Go(func() { errs[i] = fn(s) })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Down ends everything at once, without asking anybody; files below StateDir stay.
func (c *Clusters) Down() error {
	_ = c.each(func(s *Site) error { s.Kill(); return nil })
	var err error
	if c.images != nil {
		err = c.images.close()
	}
	err = errors.Join(err, c.Stage.Down())
	return errors.Join(err, c.each(func(s *Site) error { return removeGroups(s.group) }))
}

// Leftovers lists what is still on the machine: nothing after Down.
func (c *Clusters) Leftovers() []string {
	left := c.Stage.Leftovers()
	for _, name := range c.cfg.Sites {
		if s := c.sites[name]; s != nil {
			left = append(left, groupFolders(s.group)...)
		}
	}
	return left
}

// Dump writes what the API servers and nodes know about their objects to cluster.txt in each site's
// folder, next to the logs of all processes and, in pods/ folders, of all pods.
func (c *Clusters) Dump(ctx context.Context) error {
	return c.each(func(s *Site) error { return s.dump(ctx, filepath.Join(s.Dir(), "cluster.txt")) })
}

func (c *Clusters) say(format string, a ...any) {
	_, _ = fmt.Fprintf(c.cfg.Progress, "kube: "+format+"\n", a...) // progress is for people
}

// program finds a program of hack/tools.
func (c *Clusters) program(name string) (string, error) {
	file := filepath.Join(c.bin, name)
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("%w: run hack/tools/build", err)
	}
	return file, nil
}
