// SPDX-License-Identifier: Apache-2.0

package format

import (
	"bytes"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// TestReaderOfPieces: the reader shows what is in no segment that ended, and in the store in
// pieces, also when two gateways put some. It takes no piece that does not verify, and none after a
// gap.
func TestReaderOfPieces(t *testing.T) {
	h := newHost(t)
	to, root := newStore(t)
	h.lead(1)
	rng := mathrand.New(mathrand.NewPCG(8, 9))
	h.file(volume.Root, "first", h.random(rng, 90<<10))
	h.upload(to)
	var names []string
	put := func(from uint64) uint64 {
		h.applied()
		end := h.log.End()
		b := make([]byte, end.Off)
		if n, err := h.log.ReadSegmentFile(end.Seq, b, 0); n != len(b) {
			t.Fatal(n, err)
		}
		head, err := segment.DecodeHeader(b[:segment.HeaderSize])
		h.ok(err)
		names = append(names, segment.PieceName(head.Volume, segment.Piece{Seq: end.Seq, Salt: [8]byte(head.Salt[:8]), From: from,
			To: end.Off, Hash: blake3.Sum256(b)}))
		h.ok(to.Put(t.Context(), names[len(names)-1], int64(end.Off-from), bytes.NewReader(b[from:])))
		return end.Off
	}
	h.file(volume.Root, "second", h.random(rng, 90<<10))
	first := put(0)
	h.file(volume.Root, "third", h.random(rng, 30<<10))
	put(first)
	extract(t, root, h.shows(0))
	put(0) // of another gateway
	extract(t, root, h.shows(0))
	h.ok(os.Remove(filepath.Join(root, names[2])))

	for what, damage := range map[string]func(path string) error{
		"missing": os.Remove,
		"damaged": func(path string) error {
			b, err := os.ReadFile(path)
			h.ok(err)
			b[len(b)/2] ^= 1
			return os.WriteFile(path, b, 0o600)
		},
	} {
		spoiled := duplicate(t, root)
		h.ok(damage(filepath.Join(spoiled, names[0])))
		if _, messages, err := reader(t, spoiled, "list"); err == nil || !strings.Contains(messages, "/t/") {
			t.Errorf("%s: %v: %s", what, err, messages)
		}
	}

	// The whole segment is there too, and the next one.
	h.file(volume.Root, "fourth", nil)
	h.upload(to)
	extract(t, root, h.shows(0))
	if out, messages, err := reader(t, root, "verify"); err != nil || out+messages != "" {
		t.Errorf("verify: %v: %s%s", err, out, messages)
	}
}
