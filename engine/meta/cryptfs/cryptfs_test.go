// SPDX-License-Identifier: Apache-2.0

package cryptfs_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/engine/meta/cryptfs"
)

func newFS(t *testing.T, inner vfs.FS, key byte) *cryptfs.FS {
	t.Helper()
	fs, err := cryptfs.New(inner, [32]byte{key}, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

func write(t *testing.T, fs vfs.FS, name string, chunks ...[]byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chunks {
		if _, err := f.Write(bytes.Clone(c)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func readAll(t *testing.T, fs vfs.FS, name string) ([]byte, error) {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	return b, errors.Join(err, f.Close())
}

func TestRoundTrip(t *testing.T) {
	inner := vfs.NewMem()
	fs := newFS(t, inner, 1)
	rng := mathrand.New(mathrand.NewPCG(1, 2))
	var want []byte
	var chunks [][]byte
	for range 50 {
		c := make([]byte, rng.IntN(100))
		for i := range c {
			c[i] = byte(rng.Uint32())
		}
		chunks, want = append(chunks, c), append(want, c...)
	}
	write(t, fs, "a", chunks...)
	got, err := readAll(t, fs, "a")
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("read back %d bytes of %d, %v", len(got), len(want), err)
	}
	f, err := fs.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || info.Size() != int64(len(want)) {
		t.Fatalf("file size %v, %v, want %d", info, err, len(want))
	}
	if info, err := fs.Stat("a"); err != nil || info.Size() != int64(len(want)) {
		t.Fatalf("size %v, %v, want %d", info, err, len(want))
	}
	for range 200 {
		off := rng.IntN(len(want))
		p := make([]byte, rng.IntN(len(want)-off)+1)
		if _, err := f.ReadAt(p, int64(off)); err != nil || !bytes.Equal(p, want[off:off+len(p)]) {
			t.Fatalf("read of %d bytes at %d differs: %v", len(p), off, err)
		}
	}
}

func TestContentIsHidden(t *testing.T) {
	inner := vfs.NewMem()
	fs := newFS(t, inner, 1)
	secret := bytes.Repeat([]byte("a name that nobody may see "), 20)
	write(t, fs, "a", secret)
	write(t, fs, "b", secret)
	a, err := readAll(t, inner, "a")
	if err != nil || bytes.Contains(a, secret[:16]) {
		t.Fatalf("plaintext on disk (%v)", err)
	}
	b, err := readAll(t, inner, "b")
	if err != nil || bytes.Equal(a[32:], b[32:]) {
		t.Fatalf("two files of equal content are equal on disk (%v)", err)
	}
	other, err := readAll(t, newFS(t, inner, 2), "a")
	if err != nil || bytes.Equal(other, secret) {
		t.Fatalf("another key opens the file (%v)", err)
	}
}

func TestTornAndForeignFiles(t *testing.T) {
	inner := vfs.NewMem()
	fs := newFS(t, inner, 1)
	write(t, inner, "torn", make([]byte, 31))
	if got, err := readAll(t, fs, "torn"); err != nil || len(got) != 0 {
		t.Errorf("a file without a whole header reads as %d bytes, %v; want an empty file", len(got), err)
	}
	write(t, inner, "foreign", make([]byte, 100))
	if _, err := fs.Open("foreign"); err == nil {
		t.Error("a file of another format was opened")
	}
	if _, err := fs.OpenReadWrite("torn", vfs.WriteCategoryUnspecified); err == nil {
		t.Error("a file was opened for update")
	}
	write(t, fs, "old", []byte("old content"))
	f, err := fs.ReuseForWrite("old", "new", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("a file was updated in place")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(t, fs, "new"); err != nil || len(got) != 0 {
		t.Errorf("a reused file begins with %q, %v", got, err)
	}
}
