// SPDX-License-Identifier: Apache-2.0

package log

import (
	"bytes"
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

// TestBlind: a log without a key takes in what another has, also after a restart, and gives it to a
// third. It begins an epoch, in which nothing can be appended. What is damaged is found without a
// key. Nothing is decrypted.
func TestBlind(t *testing.T) {
	home := newSetup(1).mustOpen(t)
	_, err := home.BeginEpoch(1)
	must(t, err)
	appendSync(t, home, 1, 2, 3, 4, 5, 6)
	must(t, home.Roll())
	end := appendSync(t, home, 7)
	s := newSetup(2)
	s.blind = true
	b := s.mustOpen(t)
	half, next, err := home.Read(t.Context(), Position{}, 900)
	must(t, err)
	entries, err := b.Ingest(Position{}, half)
	must(t, err)
	for _, e := range entries[1:] {
		if e.Record != nil || e.Header != nil {
			t.Fatalf("it decodes %+v", e)
		}
	}
	must(t, b.Wait(t.Context(), next))
	b = s.restart(t)
	if b.End() != next || b.Recovered().Doubt != nil {
		t.Fatalf("it ends at %v, %v; want %v", b.End(), b.Recovered().Doubt, next)
	}
	all := allFrames(t, home, 1<<20)
	rest := bytes.Clone(all[len(half):])
	rest[len(rest)-1] ^= 1
	if _, err := b.Ingest(next, rest); err == nil || b.End() == end {
		t.Fatalf("damage is taken in: %v", err)
	}
	_, err = b.Ingest(Position{}, all)
	must(t, err)
	must(t, b.Wait(t.Context(), end))
	if got := allFrames(t, b, 1<<20); !bytes.Equal(got, all) {
		t.Fatalf("it has %d bytes of %d", len(got), len(all))
	}

	_, err = b.Append(rec(8))
	wantErr(t, err, ErrNoEpoch)
	_, err = b.BeginEpoch(2)
	must(t, err)
	_, err = b.Append(rec(8))
	wantErr(t, err, ErrNoEpoch)
	_, err = b.ReadBlocks(t.Context(), []segment.BlockRef{{Seq: 1, Off: segment.HeaderSize, Len: 100}})
	wantErr(t, err, ErrNoKey)
	h, _ := b.HeaderOf(b.End().Seq)
	if h.Epoch != 2 || h.Prev.Hash == (segment.Hash{}) || h.Salt == ([32]byte{}) {
		t.Errorf("it begins %+v", h)
	}
	// One that has the key follows it, and goes on.
	heir := newSetup(3).mustOpen(t)
	_, err = heir.Ingest(Position{}, allFrames(t, b, 1<<20))
	must(t, err)
	must(t, heir.Wait(t.Context(), b.End()))
	_, err = heir.BeginEpoch(3)
	must(t, err)
	appendSync(t, heir, 9)
	got := lines(t, heir, Position{})
	if want := []string{"record 7", "segment 3 epoch 2", "segment 4 epoch 3", "record 9"}; !endsWith(got, want) {
		t.Errorf("it has %v, which does not end with %v", got, want)
	}
}

func endsWith(got, want []string) bool {
	if len(got) < len(want) {
		return false
	}
	for i, w := range want {
		if got[len(got)-len(want)+i] != w {
			return false
		}
	}
	return true
}

// TestBlindRemovals: a full blind log takes in records without data, of which one may remove
// something (protocol-15), and none with data.
func TestBlindRemovals(t *testing.T) {
	home := newSetup(1).mustOpen(t)
	_, err := home.BeginEpoch(1)
	must(t, err)
	b := setup{disk: newDisk(7, 64<<10), size: 2000, blind: true}.mustOpen(t)
	follow := func() error {
		frames, _, err := home.Read(t.Context(), b.End(), 1<<20)
		must(t, err)
		_, err = b.Ingest(b.End(), frames)
		return err
	}
	var full error
	for id := 0; full == nil && id < 3000; id++ {
		appendSync(t, home, 3)
		full = follow()
	}
	wantErr(t, full, cachepool.ErrFull)
	// What found no room goes, as if the home had never had it.
	must(t, home.Truncate(b.End()))
	_, err = home.BeginEpoch(2)
	must(t, err)
	_, err = home.Append(removal(1))
	must(t, err)
	must(t, follow())
}

// TestBlindHasNoKeys: a blind log with a key, and one that is not blind without, are refused.
func TestBlindHasNoKeys(t *testing.T) {
	pool, err := newDisk(1, 1<<20).Open()
	must(t, err)
	dir, err := pool.Volume(testDir)
	must(t, err)
	for _, c := range []Config{{Blind: true, DataKey: testKey}, {Blind: true, Keys: segment.NewKeys(testKey)}, {}} {
		c.Dir, c.Room, c.Rand, c.Volume = dir, pool.Room(), salts, testVolume
		if _, err := Open(c); err == nil {
			t.Errorf("blind: %t, with key: %t: it is opened", c.Blind, c.Keys != nil || c.DataKey != segment.DataKey{})
		}
	}
}
