// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool"
)

// backwards is a pool that says that a volume's directory went back. What is on it is as it was, so
// nothing else tells.
type backwards struct {
	cachepool.Pool
	went *went
}

// went is what a pool of backwards says, also after its gateway started again.
type went struct {
	mu  sync.Mutex
	why map[string]error
}

func (w *went) back(id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.why[id] = errors.New("dataset tank/weir went back")
	return w.why[id]
}

func (p backwards) Rewound(id string) error {
	p.went.mu.Lock()
	defer p.went.mu.Unlock()
	return p.went.why[id]
}

func (p backwards) Settled(id string, why error) error {
	p.went.mu.Lock()
	defer p.went.mu.Unlock()
	if errors.Is(p.went.why[id], why) {
		delete(p.went.why, id)
	}
	return nil
}

func (p backwards) RenameVolume(from, to string) error {
	return errors.Join(p.Pool.RenameVolume(from, to), p.Settled(from, p.Rewound(from)))
}

// newBackwards is a cluster whose site a has a pool that can go back.
func newBackwards(t *testing.T, promise time.Duration) (*cluster, *went) {
	w := &went{why: map[string]error{}}
	c := newClusterOf(t, promise, "a", "b")
	c.pool = func(site string, p cachepool.Pool) cachepool.Pool {
		if site == "a" {
			return backwards{p, w}
		}
		return p
	}
	c.stop("a")
	c.start("a")
	return c, w
}

// TestADirectoryWentBack: what is in a directory that went back, while the copy is open or while it
// is not, is no member's (protocol-3): another goes on, and the copy is kept aside and made anew.
func TestADirectoryWentBack(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"open", "closed", "mixture"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, w := newBackwards(t, time.Second)
			id := c.create("v", manifest("v", 2))
			cl := &client{name: "b"}
			h := file(t, c.router("b", id), cl, "kept")
			switch name {
			case "open":
				c.at("a").copies.Reopen(id, w.back(id))
			case "closed":
				c.stop("a")
				_ = w.back(id)
				c.start("a")
			case "mixture": // the metadata were written to while they went back
				c.stop("a")
				_ = w.back(id)
				manifests, err := filepath.Glob(filepath.Join(filepath.Dir(c.segments("a", id)[0]), "meta", "MANIFEST-*"))
				if err != nil || len(manifests) == 0 {
					t.Fatal(manifests, err)
				}
				for _, m := range manifests {
					if err := os.WriteFile(m, make([]byte, 4096), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				c.start("a")
			}
			c.until("the copy is kept aside, and a has a new one", func() error {
				if len(c.at("a").copies.Salvaged(id)) == 0 || c.at("a").copies.Copy(id) == nil {
					return errors.New("not yet")
				}
				return nil
			})
			file(t, c.router("b", id), cl, "later") // waits until a counts again
			for _, s := range c.order {
				readable(t, c.router(s, id), h)
			}
		})
	}
}

// TestAPersonBelievesADirectoryThatWentBack: no other copy is there, so a person goes on with what
// the directory has. After that it is as any other.
func TestAPersonBelievesADirectoryThatWentBack(t *testing.T) {
	t.Parallel()
	c, w := newBackwards(t, time.Second)
	id := c.create("v", manifest("v", 1))
	cl := &client{name: "a"}
	h := file(t, c.router("a", id), cl, "kept")
	c.at("a").copies.Reopen(id, w.back(id))
	c.doubted(id, "a")
	if all := c.at("a").reporter.Status(id); len(all) != 1 || !strings.Contains(all[0].Problem, "tank/weir went back") {
		t.Errorf("status is %+v", all)
	}
	c.stop("a")
	c.start("a")
	c.doubted(id, "a")
	if err := c.failover(t, "a", id, true); err != nil {
		t.Fatal(err)
	}
	readable(t, c.router("a", id), h)
	c.stop("a")
	c.start("a")
	file(t, c.router("a", id), cl, "later")
	readable(t, c.router("a", id), h)
}
