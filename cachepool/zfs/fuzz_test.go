// SPDX-License-Identifier: Apache-2.0

package zfs

import "testing"

// FuzzStatus and FuzzHistory read what zpool might print.
func FuzzStatus(f *testing.F) {
	f.Add("  pool: p\n state: ONLINE\nconfig:\n\n\tNAME STATE READ WRITE CKSUM\n\tp ONLINE 0 0 0\n" +
		"\t  sda ONLINE 0 1.2K 0\n\nerrors: No known data errors\n")
	f.Fuzz(func(_ *testing.T, text string) {
		if s, err := parseStatus(text); err == nil {
			s.Conditions(true, 50)
		}
	})
}

func FuzzHistory(f *testing.F) {
	f.Add("History for 'p':\n2026-01-01.00:00:00 zfs create p/a\n2026-01-01.00:00:01 [txg:7] clone swap p/a/%rollback (5)\n" +
		"2026-01-01.00:00:02 zfs rollback -r p/a@s\n2026-01-01.00:00:03 zfs destroy p/a\n")
	f.Fuzz(func(_ *testing.T, text string) { parseHistory(text) })
}
