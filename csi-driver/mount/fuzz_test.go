// SPDX-License-Identifier: Apache-2.0

package mount

import "testing"

func FuzzMountinfo(f *testing.F) {
	f.Add("36 35 0:52 / /mnt\\040x rw,noexec shared:1 - nfs4 10.0.0.1:/v rw,vers=4.2\n")
	f.Fuzz(func(_ *testing.T, text string) {
		for _, p := range parseMountinfo(text) {
			p.ReadOnly()
		}
	})
}
