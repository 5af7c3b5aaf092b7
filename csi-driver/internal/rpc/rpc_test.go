// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/api/v1alpha1"
)

func TestHandles(t *testing.T) {
	const id = "6fa1c4f1-0f2c-4c34-9d5e-1de2a0b8a1f0"
	for handle, want := range map[string]bool{
		"fed/" + id: true, "fed/" + strings.ToUpper(id): false, "fed/x": false, id: false, "/" + id: false,
		"fed/" + id + "/x": false, "fed/": false, "": false,
	} {
		f, id, ok := parseHandle(handle)
		if ok != want || ok && v1alpha1.VolumeHandle(f, id) != handle {
			t.Errorf("%s: %s %s %v", handle, f, id, ok)
		}
	}
}

func TestMountFlags(t *testing.T) {
	for flags, want := range map[string]string{
		"":                               "",
		"hard,rw,proto=tcp":              "",
		"ro":                             "read-only",
		"noexec,nosuid":                  "vfs noexec nosuid",
		"nconnect=8,lookupcache=none":    "nfs nconnect=8 lookupcache=none",
		"vers=4.1":                       "version 4.1",
		"soft":                           "hard",
		"softerr":                        "hard",
		"nolock":                         "one node only",
		"nfsvers=3":                      "4.1 and 4.2",
		"nconnect=17":                    "1 to 16",
		"rsize=big":                      "rsize=big",
		"addr=10.0.0.1":                  "addr=10.0.0.1",
		"port=1":                         "port=1",
		"sec=krb5":                       "sec=krb5",
		"context=system_u:object_r:x:s0": "context",
	} {
		m, err := ParseMountFlags([]string{flags})
		if err != nil {
			wantCode(t, err, codes.InvalidArgument, want, strings.Split(flags, "=")[0])
			continue
		}
		var got []string
		if m.ReadOnly {
			got = append(got, "read-only")
		}
		if m.Version != "" {
			got = append(got, "version", m.Version)
		}
		if m.VFS != nil {
			got = append(append(got, "vfs"), m.VFS...)
		}
		if m.NFS != nil {
			got = append(append(got, "nfs"), m.NFS...)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %q, want %q", flags, s, want)
		}
	}
}

func TestInFlight(t *testing.T) {
	var f InFlight
	alone, err := f.Alone("a")
	wantCode(t, err, codes.OK)
	_, err = f.Shared("a")
	wantCode(t, err, codes.Aborted, "a")
	_, err = f.Alone("a")
	wantCode(t, err, codes.Aborted)
	alone()
	first, err := f.Shared("a")
	wantCode(t, err, codes.OK)
	second, err := f.Shared("a")
	wantCode(t, err, codes.OK)
	first()
	_, err = f.Alone("a")
	wantCode(t, err, codes.Aborted)
	second()
	if _, err = f.Alone("a"); err != nil || len(f.users) != 1 {
		t.Errorf("%v, %v", err, f.users)
	}
}

func wantCode(t *testing.T, err error, code codes.Code, parts ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("got %v, want code %v", err, code)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not say %q", err, p)
		}
	}
}
