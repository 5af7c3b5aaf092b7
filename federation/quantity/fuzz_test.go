// SPDX-License-Identifier: Apache-2.0

package quantity

import "testing"

// FuzzBytes: an amount that is read is the same when it was written again, as far as it is written.
func FuzzBytes(f *testing.F) {
	for _, s := range []string{"0", "1", "17Gi", "1.5Ti", "100M", "9223372036854775807", "-1", "1e3", " 1", "1K"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := ParseBytes(s)
		if err != nil {
			return
		}
		if again, err := ParseBytes(b.String()); err != nil || again.String() != b.String() {
			t.Fatalf("%q is %d, written as %q, read as %d (%v)", s, b, b, again, err)
		}
	})
}

func FuzzDuration(f *testing.F) {
	for _, s := range []string{"0s", "1h30m", "36h", "30d", "-1s", "1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDuration(s)
		if err != nil {
			return
		}
		if again, err := ParseDuration(d.String()); err != nil || again != d {
			t.Fatalf("%q is %v, read again as %v (%v)", s, d, again, err)
		}
	})
}
