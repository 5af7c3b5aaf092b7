// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weir-storage/weir/test/e2e/stage"
)

// startLimit bounds the start of a site. Nothing is expected to take it.
const startLimit = 5 * time.Minute

// Site is a site and its cluster. Its methods may be called from several goroutines, but Kill and
// Return must not run at the same time.
type Site struct {
	*stage.Site

	c        *Clusters
	index    int // from 1, in the order of Config.Sites
	hasGuest bool
	hasZFS   bool
	group    string // cgroup of pods
	pki      *authority
	api      *client

	mu    sync.Mutex
	nodes []*Node       // none while the site is dead
	procs []*stage.Proc // of the host node
}

func newSite(c *Clusters, index int, name string, guest, zfs bool) *Site {
	return &Site{Site: c.Stage.Site(name), c: c, index: index, hasGuest: guest, hasZFS: zfs,
		group: groupPrefix + c.Stage.Prefix() + "-" + name}
}

// PodRange is the range of pods' addresses. Node 1, the host, and node 2, the guest, each have a
// part of it.
func (s *Site) PodRange() string         { return fmt.Sprintf("10.%d.0.0/16", 100+s.index) }
func (s *Site) nodePods(node int) string { return fmt.Sprintf("10.%d.%d.0/24", 100+s.index, node) }

// ServiceRange is the range of Services' cluster IPs.
func (s *Site) ServiceRange() string { return fmt.Sprintf("10.%d.0.0/16", 200+s.index) }

func (s *Site) serviceAddr(n int) string { return fmt.Sprintf("10.%d.0.%d", 200+s.index, n) }
func (s *Site) server() string           { return fmt.Sprintf("https://%s:6443", s.Addr()) }
func (s *Site) hostName() string         { return s.Name() + "-host" }
func (s *Site) guestName() string        { return s.Name() + "-guest" }
func (s *Site) nodeDir(n string) string  { return filepath.Join(s.Dir(), n) }

// HasZFS reports whether the host node has ZFS, and Disks.
func (s *Site) HasZFS() bool { return s.hasZFS }

// Nodes are the cluster's nodes, the host first; none while the site is dead.
func (s *Site) Nodes() []*Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Node(nil), s.nodes...)
}

// HostNode is the host node; nil while the site is dead.
func (s *Site) HostNode() *Node { return s.node(s.hostName()) }

// GuestNode is the guest; nil when the site has none or is dead.
func (s *Site) GuestNode() *Node { return s.node(s.guestName()) }

func (s *Site) node(name string) *Node {
	for _, n := range s.Nodes() {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// start starts everything of the site, also again after Kill, and returns when its nodes are ready.
func (s *Site) start(ctx context.Context) (err error) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	defer func() {
		if err != nil {
			err = fmt.Errorf("start cluster at site %s: %w; logs are in %s", s.Name(), err, s.Dir())
		}
	}()
	if err := s.identify(); err != nil {
		return err
	}
	host, err := s.bootHost(ctx)
	if err != nil {
		return err
	}
	if err := s.startZFS(ctx, host); err != nil {
		return err
	}
	steps := []func(context.Context) error{
		s.startControl,
		func(ctx context.Context) error { return s.startNode(ctx, host, begin) },
		func(ctx context.Context) error { return s.startGuest(ctx, begin) },
	}
	errs := make([]error, len(steps))
	var wg sync.WaitGroup
	for i, step := range steps {
		wg.Go(func() {
			if errs[i] = step(ctx); errs[i] != nil {
				cancel() // the others would wait for what does not come
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return s.awaitAccounts(ctx)
}

// identify makes the cluster's certificates, once.
func (s *Site) identify() (err error) {
	if s.pki != nil {
		return nil
	}
	pki, err := newAuthority(filepath.Join(s.Dir(), "pki"), "cluster "+s.Name())
	if err != nil {
		return err
	}
	masters := []string{"system:masters"}
	_, _, err = pki.issue("apiserver", subject{user: "kube-apiserver"}, "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local", s.Addr(), s.serviceAddr(1))
	if err == nil {
		_, _, err = pki.issue("apiserver-kubelet", subject{"apiserver-kubelet", masters})
	}
	for file, who := range map[string]subject{
		"admin":      {"admin", masters},
		"controller": {"system:kube-controller-manager", masters}, // or it would need an account per controller, which costs 5 s
		"scheduler":  {user: "system:kube-scheduler"},
		"proxy":      {user: "system:kube-proxy"},
	} {
		if err == nil {
			err = pki.kubeconfig(file, who, s.server())
		}
	}
	if err == nil {
		s.api, err = newClient(pki, s)
	}
	if err != nil {
		return err
	}
	s.pki = pki
	return nil
}

// Kubeconfig is the path of an administrator's kubeconfig. It works for programs that run at the
// site.
func (s *Site) Kubeconfig() string { return filepath.Join(s.Dir(), "pki", "admin.conf") }

// Kill ends the whole cluster as a power cut would: nodes, control processes and pods, all at once.
// Disks stay. Processes that the caller started at the site keep running.
func (s *Site) Kill() {
	s.mu.Lock()
	nodes := s.nodes
	s.nodes, s.procs = nil, nil
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(n.machine.Kill)
	}
	wg.Wait()
}

// Return starts what Kill ended; it returns when the nodes are ready.
func (s *Site) Return(ctx context.Context) error {
	if len(s.Nodes()) > 0 {
		return fmt.Errorf("start cluster at site %s: it runs: Kill comes first", s.Name())
	}
	// What was killed has gone from its namespaces before its cgroups are used again.
	if err := removeGroups(s.group); err != nil {
		return err
	}
	return s.start(ctx)
}

func (s *Site) addNode(n *Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = append(s.nodes, n)
}

// dead is the error of the host node's first process that has ended.
func (s *Site) dead() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.procs {
		if p.Exited() {
			return fmt.Errorf("%s has ended; its log ends: %s", p.Name(), tail(p.Log()))
		}
	}
	return nil
}

// tail is the end of a log, for messages.
func tail(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2000):])
}

// await asks until ok has no objection, a process of the host node ends, or ctx does.
func (s *Site) await(ctx context.Context, what string, ok func(context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok(ctx)
		if err == nil {
			return nil
		}
		if ended := s.dead(); ended != nil {
			return fmt.Errorf("wait for %s: %w", what, ended)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; last: %w", what, ctx.Err(), err)
		case <-tick.C:
		}
	}
}
