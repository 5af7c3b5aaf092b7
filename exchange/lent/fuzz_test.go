// SPDX-License-Identifier: Apache-2.0

package lent

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// FuzzDeals opens arbitrary files as what a store remembers of papers.
func FuzzDeals(f *testing.F) {
	f.Add([]byte(`{"version":1,"newest":"2026-01-01T00:00:00Z","papers":[{},{"request":{"id":"i","host":"o"}},{"answer":{"id":"i"}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "deals")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := openDeals(path, "o", "s", func() time.Time { return time.Unix(1, 0) })
		if err != nil {
			return
		}
		for name, p := range d.papers {
			d.mine(p)
			d.take(name, &p)
			d.take(name, nil)
		}
	})
}
