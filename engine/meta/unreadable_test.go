// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"bytes"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/engine/segment"
)

// TestDamageEndsARange: what cannot be read ends an iteration, even where the overlay has keys
// after it. A consumer that stops early, as a listing does, must not take the keys after the damage
// for all there are (protocol-2).
func TestDamageEndsARange(t *testing.T) {
	fs := vfs.NewMem()
	s := openStore(t, fs)
	rng := mathrand.New(mathrand.NewPCG(1, 1))
	var ops []segment.Op
	var want []string
	for i := range 100 {
		v := make([]byte, 3000)
		for j := range v {
			v[j] = byte(rng.Uint32())
		}
		ops = append(ops, segment.Op{Kind: segment.Set, Key: fmt.Appendf(nil, "k%02d", i), Value: v})
		want = append(want, fmt.Sprintf("k%02d", i))
	}
	if err := s.Apply([][]segment.Op{ops}, State{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("meta")
	if err != nil {
		t.Fatal(err)
	}
	damaged := 0
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		f, err := fs.OpenReadWrite(fs.PathJoin("meta", name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(bytes.Repeat([]byte{7}, 100), 150_000); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		damaged++
	}
	if damaged != 1 {
		t.Fatalf("%d tables", damaged)
	}
	s = openStore(t, fs)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	over := NewOverlay()
	over.Apply([]segment.Op{{Kind: segment.Set, Key: []byte("k99x")}, {Kind: segment.Set, Key: []byte("k99y")}},
		segment.Position{Seq: 1, Off: 1})
	for name, o := range map[string]*Overlay{"overlay": over, "none": nil} {
		v := s.Snapshot(o)
		n, failed := 0, false
		for p, err := range v.Range([]byte("k"), []byte("l")) {
			if err != nil {
				failed = true
				continue
			}
			if failed || n >= len(want) || string(p.Key) != want[n] {
				t.Errorf("%s: key %q after %d of those before", name, p.Key, n)
				break
			}
			n++
		}
		if !failed || n == 0 {
			t.Errorf("%s: %d keys, failed %t", name, n, failed)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}
}
