// SPDX-License-Identifier: Apache-2.0

package cryptfs_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FuzzFile reads arbitrary bytes as an encrypted file. It has the size that the bytes say.
func FuzzFile(f *testing.F) {
	f.Add([]byte("WEIRPBL1"))
	f.Add(append([]byte("WEIRPBL1"), make([]byte, 100)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		inner := vfs.NewMem()
		w, err := inner.Create("f", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := readAll(t, newFS(t, inner, 1), "f")
		if err == nil && len(got) != max(0, len(b)-32) {
			t.Fatalf("%d bytes of %d", len(got), len(b))
		}
	})
}
