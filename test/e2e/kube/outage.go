// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/test/e2e/stage"
)

// StopAPI kills the API server as a crash would. The rest of the cluster keeps running.
func (s *Site) StopAPI() error {
	s.mu.Lock()
	i := slices.IndexFunc(s.procs, func(p *stage.Proc) bool { return strings.HasSuffix(p.Name(), "/kube-apiserver") })
	if i < 0 {
		s.mu.Unlock()
		return fmt.Errorf("stop the API server at site %s: it does not run", s.Name())
	}
	p := s.procs[i]
	s.procs = slices.Delete(s.procs, i, i+1)
	s.mu.Unlock()
	p.Kill()
	return nil
}

// StartAPI starts what StopAPI ended, and returns when it is ready.
func (s *Site) StartAPI(ctx context.Context) error { return s.startAPI(ctx) }

// KillGuest is a power cut of the guest node alone. Its disk stays.
func (s *Site) KillGuest() error {
	s.mu.Lock()
	i := slices.IndexFunc(s.nodes, func(n *Node) bool { return n.isGuest })
	if i < 0 {
		s.mu.Unlock()
		return fmt.Errorf("kill the guest at site %s: it does not run", s.Name())
	}
	n := s.nodes[i]
	s.nodes = slices.Delete(slices.Clone(s.nodes), i, i+1)
	s.mu.Unlock()
	n.machine.Kill()
	return nil
}

// ReturnGuest boots what KillGuest ended, and returns when the node is ready.
func (s *Site) ReturnGuest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return s.startGuest(ctx, time.Now())
}

// Cut takes the node off its site's network, silently: no connection is closed. Heal puts it back.
// Only a guest can be cut off.
func (n *Node) Cut(ctx context.Context) error {
	g, ok := n.machine.(guestMachine)
	if !ok {
		return fmt.Errorf("cut node %s off: it is no guest", n.Name)
	}
	return g.Guest.Cut(ctx)
}

// Heal undoes Cut.
func (n *Node) Heal(ctx context.Context) error {
	g, ok := n.machine.(guestMachine)
	if !ok {
		return fmt.Errorf("heal node %s: it is no guest", n.Name)
	}
	return g.Guest.Heal(ctx)
}
