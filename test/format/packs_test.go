// SPDX-License-Identifier: Apache-2.0

package format

import (
	"bytes"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// TestReaderOfPacks: the reader shows files and a snapshot whose blocks moved into a pack, when the
// segments that they were in are gone. It finds a pack that is damaged. So it does when all was
// sealed anew under another key.
func TestReaderOfPacks(t *testing.T) {
	for newest := range uint32(2) {
		t.Run(fmt.Sprint("newest data key ", newest), func(t *testing.T) { readsPacks(t, newest) })
	}
}

func readsPacks(t *testing.T, newest uint32) {
	h := newHost(t)
	to, root := newStore(t)
	h.lead(1)
	rng := mathrand.New(mathrand.NewPCG(8, 8))
	var files []volume.Handle
	for i := range 12 {
		files = append(files, h.file(volume.Root, fmt.Sprintf("file %02d", i), h.random(rng, 90<<10)))
	}
	for i := 1; i < 12; i += 2 {
		h.write(files[i], 100, h.random(rng, 50<<10)) // what no snapshot has is cut away
	}
	one, err := h.TakeSnapshot(t.Context(), asRoot, "one")
	h.ok(err)
	for i := 0; i < 12; i += 2 {
		h.write(files[i], 100, h.random(rng, 50<<10))
	}
	if newest > 0 {
		h.keys.Add(map[uint32]segment.DataKey{newest: keys[newest]})
		h.keys.Use(newest)
		h.log.NewSalt()
	}
	h.ok(h.AskCheckpoint(t.Context(), newest, false))
	h.ok(h.log.Roll())
	h.ok(h.AskCheckpoint(t.Context(), newest, false))
	h.applied()
	cut := h.TakeCut()
	m, _, err := cut.Write(t.Context(), h.keys.Get, objects{to})
	h.ok(err)
	uses, err := cut.Uses(t.Context())
	h.ok(err)
	rule := pack.Rule{Percent: 112, Write: 64 << 20, Share: 1, Small: 64 << 20, Merge: 1}
	plans, _, err := cut.Plan(t.Context(), uses, rule, newest)
	h.ok(err)
	h.ok(cut.Close())
	h.ok(h.MadeCheckpoint(t.Context(), m, cut.Number, 0))
	var packs []string
	cuts, anew := 0, 0
	for _, plan := range plans {
		var sources []pack.Source
		for _, k := range plan.Kept {
			s, _ := h.log.Segment(k.Seq)
			sources = append(sources, pack.Source{Hash: s.Hash, Len: s.Len, Kept: []pack.Kept{k}, Read: func(p []byte, off uint64) error {
				_, err := h.log.ReadSegmentFile(s.Seq, p, int64(off))
				return err
			}})
		}
		for _, k := range plan.Kept {
			for i := range k.Cuts {
				if k.Cuts[i].Whole() {
					anew++
				} else {
					cuts++
				}
			}
		}
		number, key := h.keys.Newest()
		seal := &pack.Sealing{Key: number, Data: &key, Raw: func(refs []segment.BlockRef) ([][]byte, error) {
			return h.log.ReadBlocks(t.Context(), refs)
		}, Packed: func(refs []segment.BlockRef) (all [][]byte, err error) {
			for _, ref := range refs {
				b := make([]byte, ref.Len)
				if _, err := h.log.ReadSegmentFile(ref.Seq, b, int64(ref.Off)); err != nil {
					return nil, err
				}
				if b, err = h.log.OpenPacked(ref, b); err != nil {
					return nil, err
				}
				all = append(all, b)
			}
			return all, nil
		}}
		var b bytes.Buffer
		built, err := pack.Build(segment.VolumeID(id), sources, seal, &b)
		h.ok(err)
		packs = append(packs, built.Index.Name())
		h.ok(to.Put(t.Context(), built.Index.Name(), int64(b.Len()), bytes.NewReader(b.Bytes())))
		h.ok(h.Pack(t.Context(), cut.Number, plan, built))
	}
	names := h.upload(to)
	table, err := h.Packs()
	h.ok(err)
	gone := 0
	for _, name := range names {
		_, seq, _, err := segment.ParseName(name)
		h.ok(err)
		if table.Moved[seq] != 0 {
			gone++
			h.ok(to.Delete(t.Context(), name))
		}
	}
	if gone < 2 || len(packs) == 0 || cuts == 0 || (anew > 0) != (newest > 0) {
		t.Fatalf("%d segments moved into packs %q, %d blocks are cut, %d are sealed anew", gone, packs, cuts, anew)
	}
	extract(t, root, h.shows(0))
	extract(t, root, h.shows(one.Snap), "--snapshot", "one")

	bad := duplicate(t, root)
	path := filepath.Join(bad, packs[0])
	b, err := os.ReadFile(path)
	h.ok(err)
	b[len(b)-100] ^= 1
	h.ok(os.WriteFile(path, b, 0o600))
	if out, messages, err := reader(t, bad, "verify"); err == nil || !strings.Contains(messages, packs[0]) {
		t.Errorf("verify of a damaged pack: %v: %s%s", err, out, messages)
	}
}
