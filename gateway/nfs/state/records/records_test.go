// SPDX-License-Identifier: Apache-2.0

package records_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-storage/weir/gateway/nfs/state"
	"github.com/weir-storage/weir/gateway/nfs/state/records"
	"github.com/weir-storage/weir/gateway/nfs/state/statetest"
)

func TestStores(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "clients")
	for name, open := range map[string]func() (state.Store, error){
		"memory": func() func() (state.Store, error) {
			s := &statetest.Store{}
			return func() (state.Store, error) { return s, nil }
		}(),
		"directory": func() (state.Store, error) { return records.Open(dir) },
	} {
		t.Run(name, func(t *testing.T) {
			do := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			s, err := open()
			do(err)
			do(s.Save("a", []byte("1")))
			do(s.Save("b", []byte("2")))
			do(s.Save("a", []byte("3")))
			do(s.Delete("b"))
			do(s.Delete("absent"))
			if name == "directory" { // a crash in the middle of Save
				do(os.WriteFile(filepath.Join(dir, "a.json.tmp"), []byte("torn"), 0o600))
			}
			s, err = open()
			do(err)
			got := map[string]string{}
			do(s.Load(func(k string, v []byte) error { got[k] = string(v); return nil }))
			if !maps.Equal(got, map[string]string{"a": "3"}) {
				t.Fatal(got)
			}
			stop := errors.New("stop")
			if err := s.Load(func(string, []byte) error { return stop }); !errors.Is(err, stop) {
				t.Fatal(err)
			}
			do(s.Delete("a"))
		})
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
}
