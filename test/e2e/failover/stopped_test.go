// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// readers is the number of concurrent readers at each site. With so many, some requests always wait
// in the connection of a stopped gateway.
const readers = 4

// registers are files that clients at all sites read, while one client writes each. They record
// everything that was read. No client caches.
type registers struct {
	s     *scene
	start time.Time
	files map[string]*register // by the site of the writer
	work  sync.WaitGroup
	end   context.CancelFunc

	mu     sync.Mutex
	errors []error
}

type register struct {
	mu    sync.Mutex
	h     history
	begun uint64
}

// newRegisters begins reading and writing at all sites.
func newRegisters(s *scene, writers ...string) *registers {
	s.T.Helper()
	x := &registers{s: s, start: time.Now(), files: map[string]*register{}}
	ctx, cancel := context.WithCancel(s.Ctx)
	x.end = cancel
	s.T.Cleanup(cancel)
	clients := map[string]*client.Client{}
	for _, site := range s.Bed.Names() {
		clients[site] = s.Client(site)
	}
	for _, w := range writers {
		x.files[w] = &register{}
		f := open(s, clients[w], "register-"+w, true)
		if err := write(ctx, f, 0); err != nil {
			s.T.Fatal(err)
		}
		x.work.Go(func() { x.write(ctx, f, w) })
		for _, site := range s.Bed.Names() {
			f := open(s, clients[site], "register-"+w, false)
			for i := range readers {
				x.work.Go(func() { x.read(ctx, f, w, fmt.Sprintf("reader %d at %s", i, site)) })
			}
		}
	}
	return x
}

// open opens a register, or makes it.
func open(s *scene, c *client.Client, name string, create bool) *client.File {
	s.T.Helper()
	f, err := c.Open(s.Ctx, s.Root(c), name, client.OpenArgs{Create: create})
	if err != nil {
		s.T.Fatal(err)
	}
	return f
}

func write(ctx context.Context, f *client.File, v uint64) error {
	_, err := f.WriteAt(ctx, binary.BigEndian.AppendUint64(nil, v), 0, xdr.FILE_SYNC4)
	return err
}

func (x *registers) now() time.Duration { return time.Since(x.start) }

// failed records an error that does not end the test.
func (x *registers) failed(ctx context.Context, who string, err error) {
	if ctx.Err() != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.errors = append(x.errors, fmt.Errorf("%s: %w", who, err))
}

func (x *registers) write(ctx context.Context, f *client.File, site string) {
	r := x.files[site]
	for v := uint64(1); ctx.Err() == nil; v++ {
		r.mu.Lock()
		r.begun = v
		r.mu.Unlock()
		begin := x.now()
		if err := write(ctx, f, v); err != nil {
			x.failed(ctx, "writer at "+site, err)
			return
		}
		r.mu.Lock()
		r.h.writes = append(r.h.writes, access{"writer at " + site, v, begin, x.now()})
		r.mu.Unlock()
	}
}

func (x *registers) read(ctx context.Context, f *client.File, site, who string) {
	r := x.files[site]
	p := make([]byte, 8)
	for ctx.Err() == nil {
		begin := x.now()
		n, _, err := f.ReadAt(ctx, p, 0)
		if err == nil && n != len(p) {
			err = fmt.Errorf("read %d bytes of %d", n, len(p))
		}
		if err != nil {
			x.failed(ctx, who, err)
			return
		}
		r.mu.Lock()
		r.h.reads = append(r.h.reads, access{who, binary.BigEndian.Uint64(p), begin, x.now()})
		r.mu.Unlock()
	}
}

// finish ends the reading and writing, and checks the histories. Each pause must lie within some
// access at that site. Otherwise the test has tried nothing.
func (x *registers) finish(pauses []pause) {
	t := x.s.T
	t.Helper()
	x.end()
	x.work.Wait()
	t.Logf("times count from %s", x.start.UTC().Format("15:04:05.000")) // as in the gateways' logs
	for _, err := range x.errors {
		t.Error(err)
	}
	for site, r := range x.files {
		t.Logf("register of %s: %d writes, %d reads", site, len(r.h.writes), len(r.h.reads))
		wrong := r.h.check(r.begun)
		for i, w := range wrong {
			if i < 10 || i == len(wrong)-1 {
				t.Errorf("register of %s, wrong %d of %d: %s", site, i+1, len(wrong), w)
			}
		}
	}
	for _, p := range pauses {
		n := 0
		for _, r := range x.files {
			for _, a := range slices.Concat(r.h.reads, r.h.writes) {
				if a.begin < p.begin && p.end < a.end {
					n++
				}
			}
		}
		t.Logf("home %s stopped %v..%v: %d reads and writes were under way all the time", p.site, p.begin, p.end, n)
		if n == 0 {
			t.Errorf("nothing was under way while home %s was stopped", p.site)
		}
	}
}

// pause is the time during which a home was stopped.
type pause struct {
	site       string
	begin, end time.Duration
}

// TestHomeIsStoppedUnderLoad stops the home's process for three promises, while all sites read and
// write, and lets it go on. The old home must not acknowledge or read anything in its epoch after
// the next one began. A history would show that as a read of a value older than one written or read
// elsewhere.
func TestHomeIsStoppedUnderLoad(t *testing.T) {
	s := newScene(t)
	lines := s.lines()
	seen := newRegisters(s, "a", "b", "c")
	var pauses []pause
	for range 3 {
		before := s.healthy()
		p := s.Bed.Site(before.HomeSite).Gateway()
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(promise / 4) // a busy machine stops it a moment later, and it answers what has come until then
		begin := seen.now()     // nobody can be home instead yet
		time.Sleep(3 * promise)
		after := s.newEpoch(before.Epoch)
		if after.HomeSite == before.HomeSite {
			t.Errorf("home is still %s, which is stopped, in epoch %d", after.HomeSite, after.Epoch)
		}
		pauses = append(pauses, pause{before.HomeSite, begin, seen.now()})
		if err := p.Cont(); err != nil {
			t.Fatal(err)
		}
	}
	s.healthy()
	seen.finish(pauses)
	s.finishLines(lines)
}
