// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/test/e2e/stage"
)

// Test starts a bed for a test, with three sites a, b and c, and ends it when the test ends. It
// skips the test if the user is not root. If the test fails, it keeps the logs and says in which
// folder they are.
func Test(t *testing.T, cfg Config) *Bed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces and virtual machines need root: run it with sudo")
	}
	dir, err := os.MkdirTemp("", "weir-bed-")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Sites, cfg.StateDir, cfg.Progress = []string{"a", "b", "c"}, dir, t.Output()
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	ctx, cancel := context.WithTimeout(context.Background(), max(cfg.Lasts, 20*time.Minute)) // the stage ends with it
	b, err := Up(ctx, cfg)
	if err != nil {
		cancel()
		t.Fatalf("%v; logs are in %s", err, dir)
	}
	t.Cleanup(func() {
		cancel()
		if err := b.Down(); err != nil {
			t.Error(err)
		}
		if left := b.Stage.Leftovers(); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		if t.Failed() {
			t.Logf("logs are in %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	return b
}

// Work is a program that runs in a guest until Finish.
type Work struct {
	t     *testing.T
	name  string
	guest *stage.Guest
	job   *stage.GuestJob
	stop  string
}

// Begin starts a guesttool command that takes a STOP file last.
func Begin(ctx context.Context, t *testing.T, g *stage.Guest, name, command string) *Work {
	t.Helper()
	stop := name + ".stop"
	job, err := g.Start(ctx, command+" /x/"+stop)
	if err != nil {
		t.Fatal(err)
	}
	return &Work{t, name, g, job, filepath.Join(g.Shared(), stop)}
}

// Finish ends the program and logs what it printed. The test fails if the program failed, or had
// ended before.
func (w *Work) Finish(ctx context.Context) {
	w.t.Helper()
	if err := os.WriteFile(w.stop, nil, 0o644); err != nil {
		w.t.Fatal(err)
	}
	r, err := w.job.Wait(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	if r.Code != 0 {
		w.t.Fatalf("%s in the guest failed with %d: %s%s", w.name, r.Code, r.Stdout, r.Stderr)
	}
	w.t.Log(w.name + ": " + strings.TrimSpace(r.Stdout))
}
