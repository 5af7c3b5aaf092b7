// SPDX-License-Identifier: Apache-2.0

package archive

import "testing"

// FuzzEntry decodes arbitrary values of the archive's database.
func FuzzEntry(f *testing.F) {
	f.Add([]byte(`{"value":"AA==","revision":7}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		if r, err := decode("key", value); err == nil && r.Key != "key" {
			t.Fatal(r.Key)
		}
	})
}
