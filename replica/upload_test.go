// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/log"
)

// stored reports whether a site's store has all sealed segments of its log, whole.
func (s *site) stored() bool {
	s.w.Helper()
	n := 0
	for _, g := range s.log.Segments() {
		p := make([]byte, g.Len)
		if !g.Uploaded || s.store.GetRange(context.Background(), g.Name, 0, p) != nil {
			return false
		}
		if blake3.Sum256(p) != [32]byte(g.Hash) {
			s.w.Fatalf("the store of %s has %s with other contents", s.name, g.Name)
		}
		n++
	}
	return n > 0
}

// protocol-10: each site's store gets its segments from that site's gateway, not before they are
// committed (protocol-9).
func TestEachUploadsToItsOwnStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "abc", 3)
	var mu sync.Mutex
	early := map[string]bool{} // what must not be uploaded yet
	for _, s := range w.sites {
		s.store.SetFault(func(op, name string) error {
			mu.Lock()
			defer mu.Unlock()
			if op == "put" && early[name] {
				t.Errorf("%s uploads %s, which is not committed", s.name, name)
			}
			return nil
		})
	}
	w.up("a", "b", "c")
	w.leads("a", 0)
	w.members("a", "a", "b", "c")
	w.writes(w.site("a"), 1, 30, 900)
	for _, s := range w.sites {
		w.until("store of "+s.name, s.stored)
	}
	// Without a member nothing is committed, so nothing more is uploaded, though segments are
	// sealed.
	a := w.site("a")
	a.reg.SetDown(true)
	w.net.cut("a", "b")
	w.net.cut("a", "c")
	mu.Lock()
	for id := int64(100); id < 130; id++ {
		if _, _, err := a.machine.append(context.Background(), id, 900); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range a.log.Segments() {
		if !g.Uploaded && a.replica.Status().Commit.Less(Position{Seq: g.Seq, Off: g.Len}) {
			early[g.Name] = true
		}
	}
	mu.Unlock()
	if len(early) == 0 {
		t.Fatal("no segment is sealed and not committed")
	}
	w.pass(testPromise / 2)
	mu.Lock()
	clear(early)
	mu.Unlock()
	w.net.heal()
	a.reg.SetDown(false)
	w.until("store of a", a.stored)
}

// A store that is down gets everything later.
func TestStoreOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", 1)
	a := w.site("a")
	a.store.SetFault(func(string, string) error { return errors.New("out of order") })
	w.up("a")
	w.leads("a", 0)
	w.writes(a, 1, 30, 900)
	w.pass(testPromise)
	a.store.SetFault(nil)
	w.until("store of a", a.stored)
}

// A segment that is damaged on the pool is not put into the store, which would keep it for ever. A
// good copy is fetched first.
func TestDamagedSegmentIsNotUploaded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 1)
	a := w.site("a")
	fault := func(op, _ string) error {
		if op == "put" {
			return errors.New("not yet")
		}
		return nil
	}
	a.store.SetFault(fault)
	w.up("a", "b")
	w.leads("a", 0)
	w.writes(a, 1, 30, 900)
	w.same(numbers(1, 30))
	var sealed []log.SegmentInfo
	for _, g := range a.log.Segments() {
		if !g.Uploaded {
			sealed = append(sealed, g)
		}
	}
	if len(sealed) < 2 {
		t.Fatal("too few segments")
	}
	a.disk.Damage(testVolume, fileOf(sealed[0]), func(data []byte) []byte {
		data[len(data)/2] ^= 1
		return data
	})
	w.net.cut("b", "a") // no other copy can be fetched for now; the other segments are uploaded all the same
	a.store.SetFault(nil)
	w.until("the undamaged are stored", func() bool {
		for _, g := range a.log.Segments() {
			if g.Seq != sealed[0].Seq && !g.Uploaded {
				return false
			}
		}
		return true
	})
	w.net.heal()
	w.until("store of a", a.stored)
}

func fileOf(g log.SegmentInfo) string { return strings.ToLower(fmt.Sprintf("%016x.seg", g.Seq)) }
