// SPDX-License-Identifier: Apache-2.0

package snapshots

import "testing"

// FuzzName: a name that a schedule gave is never refused.
func FuzzName(f *testing.F) {
	for _, n := range []string{"hourly-2026-11-27T15-00Z", "daily-2026-11-27T00-00Z", "before-rollback-1", "@now", "", "a"} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if _, ok := Parse(name); ok && checkAny(name) != "" {
			t.Fatalf("%q: %s", name, checkAny(name))
		}
		CheckName(name)
	})
}
