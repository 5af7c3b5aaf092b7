// SPDX-License-Identifier: Apache-2.0

package readcache

import (
	"errors"
	"testing"
)

// pin has a pass want blocks from to to of a segment.
func pin(t *testing.T, v *Volume, s Segment, from, to int, pass uint8) (pinned int, left int64) {
	t.Helper()
	for n := from; n < to; n++ {
		if v.Keep(s, at(n), pass) {
			continue
		}
		pinned++
		left += v.Pin(s, []Block{at(n)}, [][]byte{sealed(v.name, s, n)}, pass)
	}
	return pinned, left
}

// What is pinned stays, whatever is read and whoever needs room, across a restart too. A second
// pass moves nothing. What the next pass does not want goes.
func TestPinned(t *testing.T) {
	b := newBed(t, testLimit)
	v, other := b.volume("a", Share{}), b.volume("b", Share{})
	const blocks = 200
	pass := v.BeginPass()
	if n, left := pin(t, v, seg(1), 0, blocks, pass); n != blocks || left != 0 {
		t.Fatalf("%d were pinned, %d bytes have no room", n, left)
	}
	v.EndPass(t.Context(), pass)
	for s := range uint64(20) {
		put(v, seg(100+s), 0, 100)
		put(other, seg(200+s), 0, 100)
		has(t, other, seg(200+s), 0, 100)
	}
	if n := has(t, v, seg(1), 0, blocks); n != blocks {
		t.Errorf("%d of %d pinned blocks are there after others were read", n, blocks)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	b.room()
	b.start2()
	v, other = b.volume("a", Share{}), b.volume("b", Share{})
	pass = v.BeginPass()
	if n, _ := pin(t, v, seg(1), 0, blocks/4, pass); n != 0 {
		t.Errorf("%d blocks were pinned again after a restart", n)
	}
	if n, left := pin(t, v, seg(2), 0, 10, pass); n != 10 || left != 0 {
		t.Errorf("%d were pinned, %d bytes have no room", n, left)
	}
	v.EndPass(t.Context(), pass)
	s := b.cache.Status().Volumes["a"]
	if most := int64(blocks/2) * testBlock; s.Pinned > most {
		t.Errorf("%d bytes are pinned, want at most %d", s.Pinned, most)
	}
	if n := has(t, v, seg(1), 0, blocks/4); n != blocks/4 {
		t.Errorf("%d of %d blocks are left of what is wanted", n, blocks/4)
	}
	if n := has(t, v, seg(2), 0, 10); n != 10 {
		t.Errorf("%d of 10 blocks of the other segment", n)
	}
	pass = v.BeginPass()
	v.EndPass(t.Context(), pass)
	if s := b.cache.Status().Volumes["a"]; s.Pinned != 0 {
		t.Errorf("%d bytes are pinned, and nothing is wanted", s.Pinned)
	}
	if err := errors.Join(v.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
	b.room()
}

// What is pinned leaves a quarter to all else, gives way to logs beyond that, and stays within the
// volume's limit, also when that is lowered.
func TestPinnedIsBounded(t *testing.T) {
	b := newBed(t, testLimit)
	v := b.volume("a", Share{})
	pass := v.BeginPass()
	_, left := pin(t, v, seg(1), 0, 2*testLimit/testBlock, pass)
	v.EndPass(t.Context(), pass)
	s := b.cache.Status().Volumes["a"]
	if most := int64(testLimit / 4 * 3); s.Pinned > most || s.Pinned < most/2 || left == 0 {
		t.Errorf("%d bytes are pinned, %d have no room, of a pool of %d", s.Pinned, left, testLimit)
	}
	// Logs take half of the pool.
	room := b.pool.Room()
	for taken := 0; taken < testLimit/2; taken += testFile {
		if room.Reserve(testFile) != nil {
			if b.cache.MakeRoom("b", testFile) == 0 {
				t.Fatalf("after %d bytes of a log, nothing gives way", taken)
			}
			if err := room.Reserve(testFile); err != nil {
				t.Fatal(err)
			}
		}
	}
	room.Release(testLimit / 2)

	for _, limit := range []int64{20 * testFile, 8 * testFile} {
		v.SetShare(Share{Limit: limit})
		until(t, "the limit is kept", func() bool { return b.kept("a") <= limit })
	}
	was := b.cache.Status().Volumes["a"].Pinned
	put(v, seg(3), 0, 100) // what is read does not push it out
	if now := b.cache.Status().Volumes["a"].Pinned; now != was || now == 0 {
		t.Errorf("%d bytes are pinned, before %d", now, was)
	}
	if b.kept("a") > 8*testFile {
		t.Errorf("%d bytes are kept", b.kept("a"))
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	b.room()
}

// What is read has no place where all that may be kept is pinned or reserved. More than three
// quarters of the blocks are not pinned.
func TestPinnedByNumber(t *testing.T) {
	b := newBed(t, testLimit)
	b.cache = New(Config{Room: b.pool.Room(), FileSize: testFile, Slack: 1, Blocks: 40})
	v, other, third := b.volume("a", Share{}), b.volume("b", Share{Reserve: 4 * testFile}), b.volume("c", Share{})
	pass := v.BeginPass()
	if _, left := pin(t, v, seg(1), 0, 35, pass); left != 5*testBlock {
		t.Fatalf("%d bytes have no room, want those of 5 blocks", left)
	}
	v.EndPass(t.Context(), pass)
	if left := put(other, seg(2), 0, 10); left != 0 {
		t.Fatalf("%d bytes have no room", left)
	}
	if left := put(third, seg(3), 0, 10); left != 10*testBlock {
		t.Errorf("%d bytes of what was read have no place, want all", left)
	}
	if n := has(t, v, seg(1), 0, 35); n != 30 {
		t.Errorf("%d pinned blocks are there, want 30", n)
	}
}

// Pins and a reserve together leave a quarter to the logs, and give way as they grow.
func TestPinnedAndReserved(t *testing.T) {
	b := newBed(t, testLimit)
	v, other := b.volume("a", Share{}), b.volume("b", Share{Reserve: testLimit / 2})
	pass := v.BeginPass()
	pin(t, v, seg(1), 0, testLimit/testBlock/4, pass)
	v.EndPass(t.Context(), pass)
	for s := range uint64(10) {
		put(other, seg(100+s), 0, 100)
	}
	room, taken := b.pool.Room(), 0
	for ; taken < testLimit/8*7; taken += testFile {
		if room.Reserve(testFile) == nil {
			continue
		}
		if b.cache.MakeRoom("c", testFile) == 0 {
			break
		}
		if err := room.Reserve(testFile); err != nil {
			t.Fatal(err)
		}
	}
	if taken < testLimit/8*7 {
		t.Errorf("logs get %d bytes of %d, of %d that are pinned and %d that are reserved", taken, testLimit,
			b.cache.Status().Volumes["a"].Pinned, b.kept("b"))
	}
}
