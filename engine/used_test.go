// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

// checkUsed compares what the volume says that it uses with what its inodes have, and what it says
// that snapshots hold with what is there for them (meta-12).
func (h *host) checkUsed() {
	h.Helper()
	t, err := h.look()
	if err != nil {
		h.Fatal(err)
	}
	defer func() { _ = t.view.Close() }()
	var used meta.Accounting
	lo, hi := meta.After(meta.Inodes, 0)
	for pair, err := range t.view.Range(lo, hi) {
		if err != nil {
			h.Fatal(err)
		}
		n, err := meta.DecodeInode(pair.Key, pair.Value)
		if err != nil {
			h.Fatal(err)
		}
		used.Inodes++
		used.Bytes += n.Used
		var bytes uint64
		for x, err := range t.extents(n.ContentID(), 0, endOfFile) {
			if err != nil {
				h.Fatal(err)
			}
			bytes += uint64(x.Len)
		}
		if n.Type == volume.Regular && bytes != n.Used {
			h.Fatalf("inode %d has extents of %d bytes and says %d", n.Ino, bytes, n.Used)
		}
	}
	got, err := t.accounting()
	if err != nil {
		h.Fatal(err)
	}
	hlo, hhi := meta.AllHistory(nil)
	for pair, err := range t.view.Range(hlo, hhi) {
		n, herr := heldIn(pair)
		if err = errors.Join(err, herr); err != nil {
			h.Fatal(err)
		}
		used.Held += uint64(n)
	}
	dlo, dhi := meta.AllDead()
	for pair, err := range t.view.Range(dlo, dhi) {
		if err != nil {
			h.Fatal(err)
		}
		_, d, err := meta.DecodeDead(pair.Key, pair.Value)
		if err != nil {
			h.Fatal(err)
		}
		used.Held += d.Bytes
	}
	if v, err := t.versionsOf(); err != nil || v.Level >= meta.TrashLevel != got.Counted {
		h.Fatalf("what snapshots hold is counted: %t, %v, on level %d", got.Counted, err, v.Level)
	}
	if used.Counted = got.Counted; got != used {
		h.Fatalf("the volume says that it uses %+v, it uses %+v", got, used)
	}
}
