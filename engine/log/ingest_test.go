// SPDX-License-Identifier: Apache-2.0

package log

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

// pull copies from a log to a follower, up to the log's end.
func pull(t testing.TB, to, from *Log, max int) []Entry {
	t.Helper()
	var entries []Entry
	for {
		pos := to.End()
		frames, _, err := from.Read(t.Context(), pos, max)
		if err == io.EOF {
			return entries
		}
		must(t, err)
		got, err := to.Ingest(pos, frames)
		must(t, err)
		entries = append(entries, got...)
	}
}

func TestIngest(t *testing.T) {
	hs, fs := newSetup(1), newSetup(2)
	home, follower := hs.mustOpen(t), fs.mustOpen(t)
	_, err := home.BeginEpoch(1)
	must(t, err)
	for id := range 30 {
		_, err := home.Append(rec(id))
		must(t, err)
	}
	entries := pull(t, follower, home, 700)
	if len(entries) != len(lines(t, home, Position{})) || entries[len(entries)-1].End != home.End() {
		t.Fatal(len(entries))
	}
	if follower.Durable() == follower.End() {
		t.Fatal("durable without a sync")
	}
	// Duplicates, whole or partial, are skipped.
	frames := allFrames(t, home, 1<<30)
	got, err := follower.Ingest(Position{}, frames)
	if err != nil || got != nil {
		t.Fatal(got, err)
	}
	before := home.End()
	_, err = home.Append(rec(100))
	must(t, err)
	got, err = follower.Ingest(Position{}, allFrames(t, home, 1<<30))
	if err != nil || len(got) != 1 || got[0].Record.Time != 100 {
		t.Fatal(got, err)
	}
	// A follower continues a segment after a restart, since it copies and does not seal.
	must(t, follower.Wait(t.Context(), follower.End()))
	follower = fs.restart(t)
	_, err = home.Append(rec(101))
	must(t, err)
	pull(t, follower, home, 1)
	_, err = follower.Append(rec(1))
	wantErr(t, err, ErrNoEpoch)
	same(t, home, follower)

	// The old home becomes a follower of the new one.
	_, err = follower.BeginEpoch(2)
	must(t, err)
	appendSync(t, follower, 200)
	_, err = home.Append(rec(102)) // acknowledged to nobody
	must(t, err)
	all := allFrames(t, follower, 1<<30)
	_, err = home.Ingest(Position{}, all)
	wantErr(t, err, ErrDiverged)
	_ = before
	must(t, home.Truncate(follower.Epochs()[1].Start))
	pull(t, home, follower, 100)
	same(t, home, follower)
	_, err = home.Append(rec(103))
	wantErr(t, err, ErrNoEpoch)
}

// same compares two logs byte by byte and hash by hash.
func same(t testing.TB, a, b *Log) {
	t.Helper()
	if a.End() != b.End() {
		t.Fatalf("one log ends at %v, the other at %v", a.End(), b.End())
	}
	if !slices.Equal(allFrames(t, a, 4096), allFrames(t, b, 1<<20)) {
		t.Fatal("frames differ")
	}
	strip := func(l *Log) []SegmentInfo {
		segs := l.Segments()
		for i := range segs {
			segs[i].Local, segs[i].Uploaded = false, false
		}
		return segs
	}
	if !reflect.DeepEqual(strip(a), strip(b)) || !slices.Equal(a.Epochs(), b.Epochs()) {
		t.Fatalf("segments differ:\n%+v\n%+v", strip(a), strip(b))
	}
}

func TestIngestRefuses(t *testing.T) {
	hs := newSetup(3)
	home := hs.mustOpen(t)
	_, err := home.BeginEpoch(2)
	must(t, err)
	for id := range 20 {
		_, err := home.Append(rec(id))
		must(t, err)
	}
	frames := allFrames(t, home, 1<<30)
	first, next, err := home.Read(t.Context(), Position{}, 1)
	must(t, err)

	other := setup{disk: newDisk(4, 1<<30), size: 2000}.mustOpen(t)
	_, err = other.BeginEpoch(3)
	must(t, err)
	appendSync(t, other, 1)

	for name, c := range map[string]struct {
		from   Position
		frames []byte
		want   error
		kept   int // entries
	}{
		"gap":              {Position{Seq: 1, Off: 4000}, frames, ErrGap, 0},
		"next segment":     {Position{Seq: 7}, frames, ErrGap, 0},
		"cut short":        {Position{}, frames[:len(frames)-1], segment.ErrShort, 21 + 1},
		"one byte":         {Position{}, frames[:1], segment.ErrShort, 0},
		"record first":     {Position{}, frames[len(first):], ErrDiverged, 0},
		"flipped":          {Position{}, flip(frames, len(first)+60), segment.ErrCorrupt, 1},
		"flipped header":   {Position{}, flip(frames, 50), segment.ErrCorrupt, 0},
		"noise":            {Position{}, make([]byte, 500), segment.ErrCorrupt, 0},
		"another's log":    {Position{}, slices.Concat(frames[:len(first)], allFrames(t, other, 1<<30)), ErrDiverged, 1},
		"another's record": {Position{}, slices.Concat(first, allFrames(t, other, 1<<30)[segment.HeaderSize:]), ErrDiverged, 1},
		"a record dropped": {Position{}, slices.Concat(first, frames[len(first)+frameLen(t, frames[len(first):]):]), segment.ErrCorrupt, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(5)
			l := s.mustOpen(t)
			got, err := l.Ingest(c.from, c.frames)
			wantErr(t, err, c.want)
			if c.kept <= 1 && len(got) != c.kept || len(got) > 0 && got[len(got)-1].End != l.End() {
				t.Fatalf("%d entries, the log ends at %v: %+v", len(got), l.End(), got)
			}
			// What was good before the damage stays, and the rest may follow.
			_, err = l.Ingest(Position{}, frames)
			must(t, err)
			same(t, home, l)
		})
	}

	t.Run("volume and key", func(t *testing.T) {
		for _, change := range []func(*Config){
			func(c *Config) { c.Volume[5]++ },
			func(c *Config) { c.DataKey[5]++ },
		} {
			s := newSetup(6)
			pool, err := s.disk.Open()
			must(t, err)
			dir, err := pool.Volume(testDir)
			must(t, err)
			c := Config{Dir: dir, Room: pool.Room(), Volume: testVolume, DataKey: testKey, Rand: salts}
			change(&c)
			l, err := Open(c)
			must(t, err)
			if got, err := l.Ingest(Position{}, frames); err == nil || len(got) > 1 {
				t.Fatal(got, err)
			}
		}
	})
	t.Run("older epoch", func(t *testing.T) {
		l := newSetup(7).mustOpen(t)
		_, err := l.Ingest(Position{}, first)
		must(t, err)
		h := segment.Header{Volume: testVolume, Seq: 2, Epoch: 1, Salt: [32]byte{1}, Prev: l.nextLink()}
		_, err = l.Ingest(next, segment.AppendHeader(nil, h))
		wantErr(t, err, ErrStaleEpoch)
		h.Epoch, h.Prev.Hash[0] = 2, h.Prev.Hash[0]+1
		_, err = l.Ingest(next, segment.AppendHeader(nil, h))
		wantErr(t, err, ErrDiverged)
	})
	t.Run("full", func(t *testing.T) {
		l := setup{disk: newDisk(8, 3000), size: 2000}.mustOpen(t)
		got, err := l.Ingest(Position{}, frames)
		wantErr(t, err, cachepool.ErrFull)
		if len(got) == 0 || got[len(got)-1].End != l.End() {
			t.Fatal(len(got))
		}
		wantLines(t, l, lines(t, home, Position{})[:len(got)]...)
	})
}

// TestIngestEndsSealing: once a segment contains what another process sealed, this process seals
// nothing in it (protocol-16). Two homes with equal salts stand for whatever could cause that.
func TestIngestEndsSealing(t *testing.T) {
	var logs []*Log
	for range 2 {
		s := newSetup(1)
		s.rand = rand.NewChaCha8([32]byte{1})
		l := s.mustOpen(t)
		_, err := l.BeginEpoch(1)
		must(t, err)
		logs = append(logs, l)
	}
	_, err := logs[0].Append(rec(1))
	must(t, err)
	pull(t, logs[1], logs[0], 1000)
	same(t, logs[0], logs[1])
	_, err = logs[1].Append(rec(2))
	wantErr(t, err, ErrNoEpoch)
}

func flip(b []byte, at int) []byte {
	b = slices.Clone(b)
	b[at] ^= 1
	return b
}

func frameLen(t testing.TB, b []byte) int {
	t.Helper()
	n, _, err := segment.FrameSize(b)
	must(t, err)
	return n
}

// TestConverge runs three gateways, with a random home in each reign. Followers lag, crash, and cut
// what is not common. In the end all have the same bytes.
func TestConverge(t *testing.T) {
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 5))
		var sets []setup
		var logs []*Log
		for i := range 3 {
			s := setup{disk: newDisk(seed*10+uint64(i), 1<<30), size: 1500}
			sets, logs = append(sets, s), append(logs, s.mustOpen(t))
		}
		id := 0
		for epoch := uint64(1); epoch < 12; epoch++ {
			// The longest log of the last epoch has everything that was committed.
			home := 0
			for i := range logs {
				if a, b := lastEpoch(logs[i]), lastEpoch(logs[home]); a > b || a == b && logs[home].End().Less(logs[i].End()) {
					home = i
				}
			}
			if r.IntN(3) == 0 { // or not: this is a forced takeover
				home = r.IntN(3)
			}
			_, err := logs[home].BeginEpoch(epoch)
			must(t, err)
			for range r.IntN(20) {
				id++
				_, err := logs[home].Append(rec(id))
				must(t, err)
				if r.IntN(5) == 0 {
					must(t, logs[home].Roll())
				}
				for i := range logs {
					if i != home && r.IntN(4) == 0 {
						follow(t, logs[i], logs[home], 1+r.IntN(2000))
					}
				}
			}
			for i := range logs {
				switch r.IntN(4) {
				case 0:
					sets[i].disk.Crash()
					logs[i] = sets[i].mustOpen(t)
				case 1:
					must(t, logs[i].Wait(t.Context(), logs[i].End()))
				}
			}
		}
		_, err := logs[0].BeginEpoch(100)
		must(t, err)
		for i, l := range logs[1:] {
			follow(t, l, logs[0], 1000)
			must(t, l.Wait(t.Context(), l.End()))
			same(t, logs[0], l)
			sets[i+1].disk.Crash()
			same(t, logs[0], sets[i+1].mustOpen(t))
		}
	}
}

func lastEpoch(l *Log) uint64 {
	e := l.Epochs()
	if len(e) == 0 {
		return 0
	}
	return e[len(e)-1].Epoch
}

// follow truncates a follower to the prefix that it shares with the home by their epoch histories
// (protocol-6), then copies.
func follow(t testing.TB, to, from *Log, max int) {
	t.Helper()
	for {
		pos := to.End()
		frames, _, err := from.Read(t.Context(), pos, max)
		if err == io.EOF && slices.Equal(to.Epochs(), from.Epochs()) {
			return
		}
		if err == nil {
			if _, err = to.Ingest(pos, frames); err == nil {
				continue
			}
			if !errors.Is(err, ErrDiverged) {
				t.Fatal(err)
			}
		}
		must(t, to.Truncate(common(to, from)))
	}
}

// common returns the end of the longest prefix of two logs that has the same epochs.
func common(a, b *Log) Position {
	ea, eb := a.Epochs(), b.Epochs()
	n := 0
	for n < len(ea) && n < len(eb) && ea[n] == eb[n] {
		n++
	}
	end := func(l *Log, e []EpochStart) Position {
		if n < len(e) {
			return e[n].Start
		}
		return l.End()
	}
	p, q := end(a, ea), end(b, eb)
	if q.Less(p) {
		p = q
	}
	return p
}

func BenchmarkIngest(b *testing.B) {
	home := setup{disk: newDisk(1, 1<<40), size: 1 << 24}.mustOpen(b)
	_, err := home.BeginEpoch(1)
	must(b, err)
	_, err = home.Append(&segment.Record{Result: make([]byte, 1<<20)})
	must(b, err)
	frames := allFrames(b, home, 1<<30)
	b.SetBytes(int64(len(frames)))
	for i := 0; b.Loop(); i++ {
		l := setup{disk: newDisk(uint64(i), 1<<40), size: 1 << 24}.mustOpen(b)
		if _, err := l.Ingest(Position{}, frames); err != nil {
			b.Fatal(fmt.Errorf("ingest: %w", err))
		}
	}
}
