// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-storage/weir/federation/memory"
)

// TestHealth: a gateway is ready once it has the registry's whole state, and stays ready without
// the registry.
func TestHealth(t *testing.T) {
	t.Parallel()
	var none Health
	err := none.Ready()
	for _, want := range []string{"registry", "pool", "NFS"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("before it begins: %v, want something of %s", err, want)
		}
	}
	c := newCluster(t, "a")
	g := c.nodes["a"].gateway
	c.until("it is ready", g.cfg.Health.Ready)
	registry := g.cfg.Registry.(*memory.Client)
	registry.SetDown(true)
	if err := g.cfg.Health.Ready(); err != nil {
		t.Errorf("without the registry: %v", err)
	}
	registry.SetDown(false)
	h := &Health{main: "fast"}
	if err := h.probe("fast", errors.New("disk full")); err == nil ||
		!strings.Contains(h.Ready().Error(), "the pool takes no writes: disk full") {
		t.Errorf("with a full disk: %v", h.Ready())
	}
	h = &Health{heard: true, listening: true, main: "main"}
	_ = h.probe("slow", errors.New("disk full"))
	if err := h.Ready(); err == nil || !strings.Contains(err.Error(), "no write yet") {
		t.Errorf("with a main pool that was not tried yet: %v", err)
	}
	_ = h.probe("main", nil)
	if err := h.Ready(); err != nil {
		t.Errorf("with another pool that fails: %v", err)
	}
	c.stop("a")
	if err := c.nodes["a"].gateway.cfg.Health.Ready(); err == nil || !strings.Contains(err.Error(), "NFS") {
		t.Errorf("after its end: %v", err)
	}
}
