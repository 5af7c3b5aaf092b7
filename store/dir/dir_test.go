// SPDX-License-Identifier: Apache-2.0

package dir_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/store/dir"
	"github.com/weir-storage/weir/store/storetest"
)

func TestSuite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		s, err := dir.Open(filepath.Join(t.TempDir(), "new", "store"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func TestOpenRemovesOnlyOldLeftovers(t *testing.T) {
	root := t.TempDir()
	if _, err := dir.Open(root); err != nil {
		t.Fatal(err)
	}
	old, young := filepath.Join(root, ".tmp", "put1"), filepath.Join(root, ".tmp", "put2")
	for _, p := range []string{old, young} {
		if err := os.WriteFile(p, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(old, time.Unix(0, 0), time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Open(root); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(root, ".tmp"))
	if err != nil || len(left) != 1 || left[0].Name() != "put2" {
		t.Fatalf("left are %v, %v", left, err)
	}
}

func TestNameIsNoFolder(t *testing.T) {
	s, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string) error { return s.Put(t.Context(), name, 1, strings.NewReader("x")) }
	if err := put("a/b"); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"a", "a/b/c"} {
		if err := put(n); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("put of %s: %v", n, err)
		}
	}
}

func TestOpenOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Open(path); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), path) {
		t.Fatalf("error %v, want one that names the path", err)
	}
}
