// SPDX-License-Identifier: Apache-2.0

package state

import (
	"crypto/rand"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/state/statetest"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"pgregory.net/rapid"
)

func config(s Store) Config {
	return Config{
		Boot: 1, Lease: time.Minute, Store: s, Now: time.Now, Rand: rand.Reader, Log: slog.New(slog.DiscardHandler),
		Ended: func([]Ended) {}, Forget: func(Forgotten) {},
	}
}

func TestBadRecordsAreReported(t *testing.T) {
	for value, want := range map[string]string{
		"{":             "does not parse",
		`{"version":9}`: "upgrade this program",
		`{"version":1}`: "verifier has 0 bytes",
	} {
		var s statetest.Store
		if err := s.Save("client-1", []byte(value)); err != nil {
			t.Fatal(err)
		}
		if _, err := New(config(&s)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", value, err, want)
		}
	}
}

// TestTwoRecordsOfOneClient crashes between saving a client's new
// incarnation and deleting the old one.
func TestTwoRecordsOfOneClient(t *testing.T) {
	var s statetest.Store
	c := config(&s)
	tab, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	create := func(verf byte) uint64 {
		t.Helper()
		x, st := tab.ExchangeID(ExchangeArgs{Owner: "o", Verifier: [8]byte{verf}})
		if st != xdr.NFS4_OK {
			t.Fatal(st)
		}
		_, st = tab.CreateSession(CreateArgs{ClientID: x.ClientID, Sequence: x.Sequence, Fore: xdr.ChannelAttrs{MaxRequests: 4}})
		if st != xdr.NFS4_OK {
			t.Fatal(st)
		}
		return x.ClientID
	}
	save := func() map[string]string {
		m := map[string]string{}
		if err := s.Load(func(k string, v []byte) error { m[k] = string(v); return nil }); err != nil {
			t.Fatal(err)
		}
		return m
	}
	create(1)
	before := save()
	second := create(2)
	for k, v := range before {
		if err := s.Save(k, []byte(v)); err != nil {
			t.Fatal(err)
		}
	}
	c.Boot++
	if tab, err = New(c); err != nil {
		t.Fatal(err)
	}
	if l := tab.Clients(); len(l) != 1 || l[0].ID != second || len(save()) != 1 {
		t.Fatalf("%+v, %d records", l, len(save()))
	}
}

func TestSlot(t *testing.T) {
	var s slot
	want := func(seq uint32, fingerprint uint64, execute bool, want xdr.Status) {
		t.Helper()
		use, _, st := s.begin(seq, fingerprint, true)
		if (use != nil) != execute || st != want {
			t.Fatalf("sequence %d: execute %v, %v", seq, use != nil, st)
		}
	}
	want(0, 0, false, xdr.NFS4ERR_SEQ_MISORDERED)
	want(2, 0, false, xdr.NFS4ERR_SEQ_MISORDERED)
	want(1, 7, true, xdr.NFS4_OK)
	want(2, 7, false, xdr.NFS4ERR_SEQ_MISORDERED) // 1 has no answer yet
	want(1, 8, false, xdr.NFS4ERR_SEQ_FALSE_RETRY)
	s.finish(slotIdle, []byte("answer"))
	want(1, 7, false, xdr.NFS4_OK)
	want(2, 7, true, xdr.NFS4_OK)
	s.finish(slotIdle, nil)
	want(2, 7, false, xdr.NFS4ERR_RETRY_UNCACHED_REP)
	want(1, 7, false, xdr.NFS4ERR_SEQ_MISORDERED)
	want(3, 7, true, xdr.NFS4_OK)
	s.finish(slotUnknown, nil)
	want(3, 7, true, xdr.NFS4_OK) // dropped without an answer: executed again
	s.finish(slotUnknown, nil)
	want(77, 7, true, xdr.NFS4_OK)
	s.seq = ^uint32(0)
	s.finish(slotIdle, nil)
	want(0, 7, true, xdr.NFS4_OK) // sequence numbers wrap
}

// TestRanges compares ranges with a model that knows each byte of a small file.
func TestRanges(t *testing.T) {
	const n = 24
	rapid.Check(t, func(t *rapid.T) {
		var r ranges
		var model [n + 1]int // 0: none, 1: shared, 2: exclusive; the last stands for all beyond
		byteAt := func(i int) uint64 {
			if i == n {
				return ^uint64(0)
			}
			return uint64(i)
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			a := rapid.IntRange(0, n).Draw(t, "start")
			b := rapid.IntRange(a, n).Draw(t, "end")
			kind := rapid.IntRange(0, 2).Draw(t, "kind")
			end := byteAt(b)
			if kind == 0 {
				r.remove(byteAt(a), end)
			} else {
				r.set(byteAt(a), end, kind == 2)
			}
			for i := a; i <= b; i++ {
				model[i] = kind
			}
			for i := range model {
				got := 0
				for _, h := range r {
					if h.start <= byteAt(i) && byteAt(i) <= h.end {
						if got != 0 {
							t.Fatalf("byte %d is in two ranges: %v", i, r)
						}
						got = 1
						if h.exclusive {
							got = 2
						}
					}
				}
				if got != model[i] {
					t.Fatalf("byte %d: %d, want %d: %v", i, got, model[i], r)
				}
			}
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	c := config(&statetest.Store{})
	c.Lease = time.Millisecond
	if _, err := New(c); err == nil {
		t.Fatal("a lease of 1ms was accepted")
	}
	c = config(nil)
	c.Store = nil
	if _, err := New(c); err == nil {
		t.Fatal("no store was accepted")
	}
}
