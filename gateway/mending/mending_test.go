// SPDX-License-Identifier: Apache-2.0

package mending

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/store/memory"
)

// TestUploads: a segment that a crash left damaged in the store, while it was being replaced, is
// put again. What is whole there is left alone, and nothing is deleted that cannot be read.
func TestUploads(t *testing.T) {
	const name = "v/0000000000000001-1"
	whole := bytes.Repeat([]byte("segment "), 300_000)
	damaged := bytes.Clone(whole)
	damaged[len(damaged)-1] ^= 1
	for what, x := range map[string]struct {
		there []byte
		sure  bool // it was closed since the log was opened
		away  bool
		want  []byte
	}{
		"nothing is there":                  {want: whole},
		"it is whole":                       {there: whole, want: whole},
		"it is damaged":                     {there: damaged, want: whole},
		"it has another length":             {there: whole[:7], want: whole},
		"it is damaged and the store away":  {there: damaged, away: true, want: damaged},
		"nobody looks at a new one":         {there: damaged, sure: true, want: damaged},
		"a new one, and nothing is there":   {sure: true, want: whole},
		"it is whole, and the store is not": {there: whole, away: true, want: whole},
	} {
		in := memory.New()
		if x.there != nil {
			if err := in.Put(t.Context(), name, int64(len(x.there)), bytes.NewReader(x.there)); err != nil {
				t.Fatal(err)
			}
		}
		u := &Uploads{store: in, unsure: map[string]log.SegmentInfo{}}
		if !x.sure {
			u.unsure[name] = log.SegmentInfo{Seq: 1, Name: name, Len: uint64(len(whole)), Hash: blake3.Sum256(whole)}
		}
		if x.away {
			in.SetFault(func(string, string) error { return store.ErrUnavailable })
		}
		err := u.Put(t.Context(), name, int64(len(whole)), bytes.NewReader(whole))
		if away := errors.Is(err, store.ErrUnavailable); away != x.away || err != nil && !away {
			t.Errorf("%s: %v", what, err)
		}
		in.SetFault(nil)
		got := make([]byte, len(x.want))
		if err := in.GetRange(t.Context(), name, 0, got); err != nil || !bytes.Equal(got, x.want) {
			t.Errorf("%s: the store has other bytes, %v", what, err)
		}
		if _, left := u.unsure[name]; left != (x.away && !x.sure) {
			t.Errorf("%s: it is unsure: %t", what, left)
		}
	}
}

// TestSuspects: each pack is looked at once, and nothing that is no pack.
func TestSuspects(t *testing.T) {
	var s Suspects
	of := segment.VolumeID{1}
	s.Tell("v", segment.Name(of, 1, segment.Hash{}))
	s.Seen("v", pack.Hash{1})
	if all := s.Of("v"); len(all) > 0 {
		t.Errorf("%x", all)
	}
	for range 2 {
		s.Tell("v", pack.Name(of, pack.Hash{7}))
	}
	if all := s.Of("v"); !slices.Equal(all, []pack.Hash{{7}}) || len(s.Of("w")) > 0 {
		t.Errorf("%x", all)
	}
	s.Seen("v", pack.Hash{7})
	s.Tell("v", pack.Name(of, pack.Hash{7}))
	if all := s.Of("v"); len(all) > 0 {
		t.Errorf("%x are looked at again", all)
	}
}

// TestWhatIsDamagedStays: what is damaged in a store is there until what takes its place is. Most
// of it can be read, and perhaps nobody else has the rest.
func TestWhatIsDamagedStays(t *testing.T) {
	const name = "v/0000000000000001-1"
	whole := bytes.Repeat([]byte("segment "), 1000)
	damaged := bytes.Clone(whole)
	damaged[0] ^= 1
	in := memory.New()
	if err := in.Put(t.Context(), name, int64(len(damaged)), bytes.NewReader(damaged)); err != nil {
		t.Fatal(err)
	}
	in.SetFault(func(op, _ string) error { // it deletes, and has no room
		if op == "put" {
			return store.ErrUnavailable
		}
		return nil
	})
	u := &Uploads{store: in, unsure: map[string]log.SegmentInfo{
		name: {Seq: 1, Name: name, Len: uint64(len(whole)), Hash: blake3.Sum256(whole)}}}
	if err := u.Put(t.Context(), name, int64(len(whole)), bytes.NewReader(whole)); !errors.Is(err, store.ErrUnavailable) {
		t.Fatal(err)
	}
	got := make([]byte, len(damaged))
	if err := in.GetRange(t.Context(), name, 0, got); err != nil || !bytes.Equal(got, damaged) {
		t.Errorf("what was there is gone: %v", err)
	}
	in.SetFault(nil)
	if err := u.Put(t.Context(), name, int64(len(whole)), bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	if err := in.GetRange(t.Context(), name, 0, got); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("it was not replaced: %v", err)
	}
}
