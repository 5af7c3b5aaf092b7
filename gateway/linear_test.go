// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/volume"
)

var histories = flag.Int("histories", 100, "histories of clients that TestStrongIsLinearizable judges")

// A history is what a few clients saw of one file of eight bytes: a register.
type registerOp struct {
	write bool
	value uint64
}

var register = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		if op := input.(registerOp); op.write {
			return true, op.value
		}
		return output.(uint64) == state.(uint64), state
	},
	DescribeOperation: func(input, output any) string {
		if op := input.(registerOp); op.write {
			return fmt.Sprintf("write %d", op.value)
		}
		return fmt.Sprintf("read %d", output)
	},
}

// strong is a volume of three copies, of which two vote, and a site without a copy, with links that
// can be cut.
type strong struct {
	*cluster
	id     string
	mu     sync.RWMutex    // which gateways there are
	leased [2]atomic.Int64 // reads that a copy without a vote answered, and a gateway without a copy
	reads  atomic.Int64
}

func newStrong(t *testing.T, promise time.Duration) *strong {
	c := newClusterOf(t, promise)
	c.withLinks(10 * time.Millisecond)
	for _, s := range []string{"a", "b", "d", "c"} {
		c.add(s)
	}
	s := &strong{cluster: c, id: c.createAt("strong", rolling("strong", 2), []string{"a", "b", "d"})}
	c.router("a", s.id)
	c.admit("c", s.id)
	follows(c, "c", "a", s.id)
	return s
}

// lent reports whether a read at a site would be answered under a lease just now by who has no
// vote: 0 with a copy, 1 without; -1: it would not.
func (s *strong) lent(site string) int {
	g := s.at(site)
	if o := g.copies.Outline(s.id); o != nil {
		if o.Follower.Leased() {
			return 1
		}
	}
	if c := g.copies.Copy(s.id); c != nil && c.MayServe() == nil {
		if ctl := c.Replica.Control(); ctl != nil {
			for _, m := range ctl.Members {
				if m.Site == site {
					return -1
				}
			}
			return 0
		}
	}
	return -1
}

// TestLeasesAtSitesWithoutAVote: under Strong, a site that reads much asks nobody, with a copy that
// has no vote and without a copy. What is acknowledged anywhere is there at once.
func TestLeasesAtSitesWithoutAVote(t *testing.T) {
	t.Parallel()
	s := newStrong(t, 5*time.Second) // a lease outlasts what this machine may stall
	a, cl := s.router("a", s.id), &client{name: "w"}
	f := file(t, a, cl, "f")
	far := ""
	s.until("there is a copy without a vote", func() error {
		ctl := s.at("a").copies.Copy(s.id).Replica.Control()
		if ctl == nil || len(ctl.Members) != 2 || ctl.Home.Site != "a" {
			return fmt.Errorf("%+v", ctl)
		}
		far = "d"
		if ctl.Members[0].Site == far || ctl.Members[1].Site == far {
			far = "b"
		}
		return nil
	})
	p := make([]byte, 1)
	for i, site := range []string{far, "c"} {
		at := s.router(site, s.id)
		s.until("a lease is lent to "+site, func() error {
			if _, _, err := at.Read(within(t, hang), volume.Request{}, f, 0, p); err != nil {
				t.Fatal(err)
			}
			if s.lent(site) != i {
				return errors.New("none")
			}
			return nil
		})
		before, _ := reads(s.cluster, site, s.id)
		local := 0
		for range 200 {
			if s.lent(site) >= 0 {
				local++
			}
			if _, err := at.GetAttr(within(t, hang), volume.Request{}, f); err != nil {
				t.Fatal(err)
			}
		}
		// The lease may end, when this machine is slow.
		if after, _ := reads(s.cluster, site, s.id); local < 100 || after-before > uint64(200-local)+2 {
			t.Errorf("%s: of 200 reads %d had a lease, and the home was asked for %d", site, local, after-before)
		}
		for n := range byte(50) {
			if _, err := a.Write(within(t, hang), cl.next(), f, 0, []byte{n}, true); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if _, _, err := at.Read(within(t, hang), volume.Request{}, f, 0, p); err != nil || p[0] != n {
					t.Fatalf("%s: after %d was written, %d is read, %v", site, n, p[0], err)
				}
			}
		}
	}
	s.until("c has a lease", func() error {
		if _, _, err := s.router("c", s.id).Read(within(t, hang), volume.Request{}, f, 0, p); err != nil {
			t.Fatal(err)
		}
		if s.lent("c") != 1 {
			return errors.New("none")
		}
		return nil
	})
	// c is cut off, with a lease. A change waits until that has ended, and no longer; the next ones
	// do not wait.
	for _, k := range s.links.around("c") {
		k.cut()
	}
	for n := range byte(3) {
		if _, err := a.Write(within(t, hang), cl.next(), f, 0, []byte{100 + n}, true); err != nil {
			t.Fatal(err)
		}
		if s.at("c").copies.Outline(s.id).Follower.Leased() {
			t.Error("a change is acknowledged that c, with a lease, does not know of")
		}
	}
	for _, k := range s.links.around("c") {
		k.heal()
	}
	at := s.router("c", s.id)
	if _, _, err := at.Read(within(t, hang), volume.Request{}, f, 0, p); err != nil || p[0] != 102 {
		t.Errorf("%d, %v", p[0], err)
	}
}

// TestStrongIsLinearizable: clients at all sites write and read files of a Strong volume, while
// links are cut, gateways start again, homes move and clocks jump. What they saw of each file is
// linearizable (protocol-26). Many of the reads are answered under leases by who has no vote.
func TestStrongIsLinearizable(t *testing.T) {
	s := newStrong(t, time.Second)
	var next atomic.Int64
	ctx, end := context.WithCancel(t.Context())
	var faults, work sync.WaitGroup
	faults.Go(func() { s.disturb(ctx, rand.New(rand.NewPCG(1, 2))) })
	for range 24 {
		work.Go(func() {
			for n := next.Add(1); n <= int64(*histories) && !t.Failed(); n = next.Add(1) {
				s.judge(uint64(n))
			}
		})
	}
	work.Wait()
	end()
	faults.Wait()
	t.Logf("%d histories, %d reads, of which %d were answered under a lease by a copy without a vote, and %d without a copy", *histories,
		s.reads.Load(), s.leased[0].Load(), s.leased[1].Load())
	if s.leased[0].Load() == 0 || s.leased[1].Load() == 0 {
		t.Error("nobody read under a lease")
	}
}

// disturb does something to the sites, again and again.
func (s *strong) disturb(ctx context.Context, rnd *rand.Rand) {
	wait := func(most time.Duration) {
		select {
		case <-time.After(time.Duration(rnd.Int64N(int64(most)))):
		case <-ctx.Done():
		}
	}
	// Who is disturbed first may get no lease for ten promises, which is longer than a short run.
	for ctx.Err() == nil && (s.leased[0].Load() == 0 || s.leased[1].Load() == 0) {
		wait(20 * time.Millisecond)
	}
	for ctx.Err() == nil {
		site := s.order[rnd.IntN(len(s.order))]
		ways := s.links.around(site)
		if len(ways) > 0 && rnd.IntN(2) == 0 {
			ways = ways[:1] // only one way, to or from one other site
		}
		switch rnd.IntN(8) {
		case 0, 1, 2:
			for _, k := range ways {
				k.cut()
			}
			wait(1500 * time.Millisecond)
			for _, k := range ways {
				if rnd.IntN(2) == 0 {
					k.reset()
				}
				k.heal()
			}
		case 3:
			for _, k := range ways {
				k.reset()
			}
		case 4, 5:
			s.mu.Lock()
			s.stop(site)
			s.mu.Unlock()
			wait(500 * time.Millisecond)
			s.mu.Lock()
			s.start(site)
			s.mu.Unlock()
		case 6:
			s.mu.RLock()
			if c := s.at(site).copies.Copy(s.id); c != nil {
				c.Replica.Move("g" + []string{"a", "b", "d"}[rnd.IntN(3)])
			}
			s.mu.RUnlock()
		case 7:
			s.mu.RLock()
			s.at(site).node.Jumped()
			s.at(site).copies.Jumped()
			s.mu.RUnlock()
		}
		wait(time.Second)
	}
}

// routerAt returns the volume at a site as it is there now; nil: it is not.
func (s *strong) routerAt(site string) *routing.Router {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.nodes[site].stop == nil {
		return nil
	}
	r, _ := s.opened(s.at(site), s.id)
	return r
}

// judge has clients at all sites use a new file, and judges what they saw.
func (s *strong) judge(n uint64) {
	const opTime = 8 * time.Second // for one operation: what takes longer has an unknown outcome
	name := fmt.Sprintf("f%d", n)
	began := time.Now()
	maker := &client{name: name}
	var f volume.Handle
	for at := 0; ; at++ {
		r := s.routerAt([]string{"a", "b", "d"}[at%3])
		if r == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(s.t.Context(), opTime)
		made, err := r.Create(ctx, maker.next(), volume.Root, fmt.Sprint(name, ".", at), volume.CreateArgs{Type: volume.Regular,
			Attr: volume.SetAttr{Mode: new(uint32(0o666))}})
		if err == nil {
			f = made.Attr.Handle
			_, err = r.Write(ctx, maker.next(), f, 0, make([]byte, 8), true)
		}
		cancel()
		if err == nil {
			break
		}
		if time.Since(began) > 3*time.Minute {
			s.t.Errorf("no file is made: %v", err)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	var mu sync.Mutex
	var seen []porcupine.Operation
	var clients sync.WaitGroup
	for i, site := range s.order {
		clients.Go(func() {
			rnd, cl := rand.New(rand.NewPCG(n, uint64(i))), &client{name: fmt.Sprint(name, "/", i)}
			for k := range uint64(12) {
				op := registerOp{write: rnd.IntN(4) == 0, value: uint64(i)<<32 | k + 1}
				r := s.routerAt(site)
				if r == nil {
					time.Sleep(50 * time.Millisecond)
					continue
				}
				p := make([]byte, 8)
				ctx, cancel := context.WithTimeout(s.t.Context(), opTime)
				lent := s.lentNow(site)
				x := porcupine.Operation{ClientId: i, Input: op, Call: time.Since(began).Nanoseconds()}
				var err error
				if op.write {
					binary.BigEndian.PutUint64(p, op.value)
					_, err = r.Write(ctx, cl.next(), f, 0, p, true)
				} else if _, _, err = r.Read(ctx, volume.Request{}, f, 0, p); err == nil {
					x.Output = binary.BigEndian.Uint64(p)
					s.reads.Add(1)
					if lent >= 0 {
						s.leased[lent].Add(1)
					}
				}
				x.Return = time.Since(began).Nanoseconds()
				cancel()
				mu.Lock()
				switch {
				case err == nil:
					seen = append(seen, x)
				case op.write: // it may take effect at any time, or never
					x.Return, x.ClientId = int64(1)<<62, len(seen)+100
					seen = append(seen, x)
				}
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	switch result, info := porcupine.CheckOperationsVerbose(register, seen, time.Minute); result {
	case porcupine.Illegal:
		_ = info
		text := ""
		for _, x := range seen {
			text += fmt.Sprintf("\n%d: %.3f to %.3f ms: %s", x.ClientId, float64(x.Call)/1e6, float64(x.Return)/1e6,
				register.DescribeOperation(x.Input, x.Output))
		}
		s.t.Errorf("what was seen of %s is not linearizable:%s", name, text)
	case porcupine.Unknown:
		s.t.Errorf("history %s could not be judged in a minute", name)
	}
}

// lentNow is lent for a site whose gateway may be stopped.
func (s *strong) lentNow(site string) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.nodes[site].stop == nil {
		return -1
	}
	return s.lent(site)
}
