// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"testing"
	"time"
)

// FuzzCredentials reads arbitrary texts as authorities, certificate, key and charter.
func FuzzCredentials(f *testing.F) {
	now := time.Unix(1_800_000_000, 0)
	a, err := NewAuthority("demo", now, time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	own, err := a.Pair()
	if err != nil {
		f.Fatal(err)
	}
	p, err := a.Issue(Identity{Federation: "demo", Organization: "o", Site: "s", Gateway: "g", Part: PartGateway}, nil, now, time.Minute)
	if err != nil {
		f.Fatal(err)
	}
	signed, err := a.SignCharter(Charter{Federation: "demo"})
	if err != nil {
		f.Logf("charter: %v", err)
	}
	f.Add(own.Cert, p.Cert, p.Key, signed)
	f.Add(own.Cert, own.Cert, own.Key, "a.b.c")
	f.Fuzz(func(_ *testing.T, authority, cert, key []byte, charter string) {
		_, _, _ = parseSet(authority, Pair{Cert: cert, Key: key}, now)
		_, _ = ParseAuthority(Pair{Cert: cert, Key: key})
		_, _ = ReadCharter(authority, "demo", charter)
		_, _ = Founders(authority)
		_, _ = Reader(authority, "", func() time.Time { return now })
	})
}
