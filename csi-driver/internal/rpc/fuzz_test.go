// SPDX-License-Identifier: Apache-2.0

package rpc

import "testing"

func FuzzMountFlags(f *testing.F) {
	f.Add("ro,nfsvers=4.1,nconnect=16,lookupcache=pos")
	f.Fuzz(func(t *testing.T, flags string) {
		m, err := ParseMountFlags([]string{flags})
		if err == nil && len(m.VFS)+len(m.NFS) > len(flags) {
			t.Fatal(m)
		}
	})
}

func FuzzHandle(f *testing.F) {
	f.Add("demo/01890000-0000-7000-8000-000000000001")
	f.Fuzz(func(t *testing.T, handle string) {
		if of, id, ok := parseHandle(handle); ok && of+"/"+id != handle {
			t.Fatal(handle)
		}
	})
}
