// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/federation"
)

// gated is a pool of which the reads of a replay wait until the gate is open.
type gated struct {
	cachepool.Pool
	gate *gate
}

type gate struct{ opened chan struct{} }

type gatedDir struct {
	cachepool.Dir
	gate *gate
}

type gatedFile struct {
	cachepool.File
	gate *gate
}

func (p gated) Volume(uuid string) (cachepool.Dir, error) {
	d, err := p.Pool.Volume(uuid)
	return gatedDir{d, p.gate}, err
}

func (d gatedDir) Open(name string) (cachepool.File, error) {
	f, err := d.Dir.Open(name)
	return gatedFile{f, d.gate}, err
}

func (f gatedFile) ReadAt(p []byte, off int64) (int, error) {
	if inside(".(*Engine).Replay") {
		<-f.gate.opened
	}
	return f.File.ReadAt(p, off)
}

// inside reports whether a function whose name ends in that called its caller.
func inside(function string) bool {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		if is := strings.HasSuffix(f.Function, function); is || !more {
			return is
		}
	}
}

// TestReplayIsTold: a home that replays its log for long says so, in its own state and in the
// registry, until it serves.
func TestReplayIsTold(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a")
	id := c.create("v", manifest("v", 1))
	created := id
	cl := &client{name: "a"}
	early := file(t, c.router("a", id), cl, "early")
	other := c.create("w", manifest("w", 1))
	file(t, c.router("a", other), cl, "early")
	reports := func() (is federation.Observed) {
		c.with(func(r federation.Registry) error {
			all, err := r.ListObserved(context.Background(), id)
			if err == nil && len(all) == 1 {
				is = all[0]
			}
			return err
		})
		return is
	}
	for _, id = range []string{other, created} { // either may come first later
		c.until("the home reports", func() error {
			if is := reports(); is.Epoch == 0 {
				return errors.New("not yet")
			}
			return nil
		})
	}
	c.stop("a")
	// All of the log is replayed into new metadata.
	for _, v := range []string{id, other} {
		if err := os.RemoveAll(filepath.Join(c.dir, "a", "volumes", v, "meta")); err != nil {
			t.Fatal(err)
		}
	}
	g := &gate{opened: make(chan struct{})}
	open := sync.OnceFunc(func() { close(g.opened) })
	defer open()
	c.pool = func(_ string, p cachepool.Pool) cachepool.Pool { return gated{p, g} }
	c.start("a")
	const says = "its log is replayed: "
	var reported federation.Observed
	c.until("the replay is told, and that the other copy waits for its turn", func() error {
		s, _ := c.at("a").copies.State(id)
		w, _ := c.at("a").copies.State(other)
		if s.Problem != nil && !strings.Contains(s.Problem.Error(), says) {
			s, w, id, other = w, s, other, id // it came first
		}
		if w.Problem == nil || !strings.Contains(w.Problem.Error(), "waits until other copies are open") {
			return fmt.Errorf("the other says %v", w.Problem)
		}
		reported = reports()
		if s.Problem == nil || !strings.Contains(s.Problem.Error(), says) || !strings.Contains(reported.Opening, says) {
			return errors.New("not yet")
		}
		return nil
	})
	late := c.create("x", manifest("x", 1))
	c.until("a volume made meanwhile waits for its turn, too", func() error {
		if s, _ := c.at("a").copies.State(late); s.Problem == nil {
			return errors.New("nothing is told")
		}
		for _, o := range c.at("a").copies.Opening() {
			if o.UUID == late {
				return nil
			}
		}
		return errors.New("it is not among those that are opened")
	})
	if reported.Message != reported.Opening || reported.Home != "ga" || reported.Epoch == 0 {
		t.Errorf("the registry has %+v", reported)
	}
	open()
	readable(t, c.router("a", created), early)
	c.until("the home that serves reports as ever", func() error {
		if is := reports(); is.Opening != "" || is.Message != "" {
			return errors.New(is.Opening + is.Message)
		}
		return nil
	})
}
