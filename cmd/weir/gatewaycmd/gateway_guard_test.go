// SPDX-License-Identifier: Apache-2.0

package gatewaycmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-storage/weir/federation"
)

func TestGuardFile(t *testing.T) {
	f := guardFile(filepath.Join(t.TempDir(), guardName))
	s, err := f.load()
	if err != nil || s.Cluster != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	for n := range uint64(2) {
		if err := f.save(federation.GuardState{Cluster: 7, Revision: 9, Changes: map[string]uint64{"v": n}}); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = f.load(); err != nil || s.Cluster != 7 || s.Revision != 9 || s.Changes["v"] != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	if err := os.WriteFile(string(f), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.load(); err == nil || !strings.Contains(err.Error(), "restore it") {
		t.Errorf("damaged: %v", err)
	}
}
