// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/packsource"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// TestStrays: segments that are in the store, and were dropped before the copy was opened, go when
// a checkpoint that was asked for since is made. One of another hash stays.
func TestStrays(t *testing.T) {
	y := newYear(t, time.Minute, false) // segments end often
	keeper := func() *Keeper {
		cfg := y.newKeeper().cfg
		cfg.Due = Due{Bytes: 1 << 20, Shrunk: 1 << 20, Segments: 4, Grace: time.Hour}
		return New(cfg)
	}
	y.keeper = keeper()
	page, other := y.file("page"), y.file("other")
	var first, last log.SegmentInfo // that are dropped
	i := uint64(0)
	write := func() {
		random := func(h volume.Handle, off uint64, n int) {
			p := make([]byte, n)
			for k := range p {
				p[k] = byte(y.rng.Uint32())
			}
			_, err := y.engine.Write(t.Context(), volume.Request{}, h, off, p, true)
			y.must(err)
		}
		random(page, 0, 4000)      // what is written over and over
		for k := range uint64(5) { // what stays where it is
			if i%400 == 0 {
				random(other, (i/400*5+k)<<20, 1<<20)
			}
		}
		i++
		y.tick()
		y.keep()
	}
	for first.Seq == 0 || last.Seq == 0 {
		if i > 5000 {
			t.Fatal("too little is dropped in half a day")
		}
		write()
		for _, s := range y.log.Segments() {
			if s.Dropped && first.Seq == 0 {
				first = s
			} else if s.Dropped {
				last = s
			}
		}
	}
	put := func(name string) { y.must(y.store.Put(t.Context(), name, 5, bytes.NewReader([]byte("whole")))) }
	there := func(name string) bool {
		_, err := y.store.Stat(t.Context(), name)
		if err != nil && !errors.Is(err, store.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil
	}
	of, err := packsource.VolumeOf(y.copy.UUID)
	y.must(err)
	left := []string{first.Name, last.Name}
	others := []string{segment.Name(of, first.Seq, segment.Hash{7}), segment.Name(of, last.Seq, segment.Hash{7})}
	for _, name := range append(left, others...) {
		put(name)
	}

	// The copy is opened again.
	y.keeper = keeper()
	y.keep()
	for _, name := range left {
		if !there(name) {
			t.Errorf("%s goes before a checkpoint was made", name)
		}
	}
	for there(left[0]) || there(left[1]) {
		if i > 10_000 {
			t.Fatal("they are there after half a day: ", there(left[0]), there(left[1]))
		}
		write()
	}
	for _, name := range others {
		if !there(name) {
			t.Errorf("%s is gone, which is of another past", name)
		}
	}
	for _, s := range y.log.Segments() {
		if s.Uploaded && !s.Dropped && !there(s.Name) {
			t.Errorf("%s is gone", s.Name)
		}
	}
}
