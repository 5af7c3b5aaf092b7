// SPDX-License-Identifier: Apache-2.0

package counted

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/cachepool"
)

// The room has what metadata take on the disk, at each moment of their life.
func TestMetadataCountInTheRoom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "meta")
	const others = 1000
	room := cachepool.NewRoom("p", 1<<30, others)
	on := New(vfs.Default, room.Count)
	check := func(when string) {
		t.Helper()
		want, err := Size(vfs.Default, dir)
		if got := room.Status().Used - others; err != nil || got != want {
			t.Errorf("%s: the room counts %d bytes, the folder has %d, %v", when, got, want, err)
		}
	}
	value := make([]byte, 4<<10)
	for round := range 3 {
		db, err := pebble.Open(dir, &pebble.Options{FS: on, MemTableSize: 256 << 10, DisableWAL: round != 1,
			FormatMajorVersion: pebble.FormatNewest, Logger: quiet{t}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 500 {
			if _, err := rand.Read(value); err != nil { // so that it is not compressed
				t.Fatal(err)
			}
			if err := db.Set(fmt.Appendf(nil, "%d-%d", i%200, round), value, pebble.NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		if round > 0 {
			if err := db.DeleteRange([]byte("0"), []byte("9"), pebble.NoSync); err != nil {
				t.Fatal(err)
			}
			if err := db.Compact(t.Context(), []byte("0"), []byte("99999"), false); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprintf("round %d", round))
		if used := room.Status().Used; round == 0 && used < others+200*int64(len(value)) {
			t.Errorf("%d bytes are used after 200 values were written", used)
		}
	}

	path := filepath.Join(dir, "x")
	for name, change := range map[string]func() error{
		"written, not at its end": func() error {
			f, err := on.Create(path, vfs.WriteCategoryUnspecified)
			if err != nil {
				return err
			}
			if _, err := f.Write(value); err != nil {
				return err
			}
			if _, err := f.WriteAt(value, 1<<10); err != nil {
				return err
			}
			return f.Close()
		},
		"opened again": func() error {
			f, err := on.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
			if err != nil {
				return err
			}
			if _, err := f.Write(value[:100]); err != nil {
				return err
			}
			return f.Close()
		},
		"linked":  func() error { return on.Link(path, path+"-2") },
		"renamed": func() error { return on.Rename(path, path+"-2") },
		"reused": func() error {
			f, err := on.ReuseForWrite(path, path+"-3", vfs.WriteCategoryUnspecified)
			if err != nil {
				return err
			}
			return f.Close()
		},
		"removed": func() error { return on.Remove(path) },
	} {
		f, err := on.Create(path, vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = f.Write(value)
		}
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
		if err := change(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		check(name)
		for _, left := range []string{"-2", "-3"} {
			_ = on.Remove(path + left)
		}
	}
	if err := on.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if used := room.Status().Used; used != others {
		t.Errorf("%d bytes are counted when all is gone, want %d", used, others)
	}
}

// quiet is a logger that tells errors only.
type quiet struct{ t *testing.T }

func (quiet) Infof(string, ...any)             {}
func (q quiet) Errorf(format string, a ...any) { q.t.Errorf(format, a...) }
func (q quiet) Fatalf(format string, a ...any) { q.t.Errorf(format, a...) }
