// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// FuzzLedger opens arbitrary files as ledgers.
func FuzzLedger(f *testing.F) {
	f.Add([]byte(`{"version":1,"clean":true,"accounts":{"a":{"g":{}}}}`))
	f.Add([]byte(`{"version":1,"accounts":{"a":{"g":null},"b":null}}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "ledger")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(path, func() time.Time { return time.Unix(1, 0) })
		if err != nil {
			return
		}
		l.Read("a", "g", 5)
		l.mu.Lock()
		l.of("a", "g")
		l.of("b", "g")
		l.mu.Unlock()
	})
}
