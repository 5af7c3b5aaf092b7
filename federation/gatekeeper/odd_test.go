// SPDX-License-Identifier: Apache-2.0

package gatekeeper

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

// TestOddRequests: whatever key and value somebody sends, there is an answer: no part of the
// federation may write it, but for deletions of what is not there.
func TestOddRequests(t *testing.T) {
	record, err := federation.Encode(struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewAuthority("demo", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	root, err := ca.Pair()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Identity{Federation: "demo", Organization: "A", Site: "x", Gateway: "r", Part: pki.PartRegistry}, nil,
		time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := pki.Load(root.Cert, pair, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	seal := signed.New(creds, nil, nil)
	all := append([]string{"", "nothing", "rewound", "testimony", "canary", "reconciled", "name", "gateway"}, kinds...)
	n := 0
	for _, kind := range all {
		for _, rest := range []string{"", "/", "//", "/x", "/x/", "/x//", "/x/y", "/x/y/z", "/x/y/z/", "/x/y/z/v", "/../x", "/x\x00"} {
			for _, value := range [][]byte{nil, {}, []byte("x"), []byte("{}"), []byte(`{"version":1}`),
				[]byte(`{"version":9,"record":{}}`), record} {
				for _, part := range append(pki.Parts(), pki.PartUnknown) {
					for _, refused := range []bool{false, true} {
						w := write{key: kind + rest, value: value, deletes: value == nil}
						q := &request{who: pki.Identity{Federation: "demo", Organization: "A", Site: "x", Gateway: "x", Part: part},
							now: time.Unix(1, 0), writes: []write{w}, facts: map[string]fact{}, refused: refused, credentials: creds,
							seal: seal}
						for _, k := range needs(q.who, q.writes) {
							q.facts[k] = fact{}
						}
						n++
						if err := judge(q); err == nil && !w.deletes && !(refused && part == pki.PartAdministrator) {
							t.Errorf("%q may write %q to %q", part, value, w.key)
						}
					}
				}
			}
		}
	}
	// Prefixes are deleted by an administrator who ends a reconciliation.
	for _, key := range []string{"", "volume/", "rewound/", "testimony/", "rewound/x"} {
		q := &request{who: pki.Identity{Part: pki.PartAdministrator}, writes: []write{{key: key, deletes: true, prefixed: true}},
			refused: true,
			facts:   map[string]fact{}}
		if d := (*denial)(nil); !errors.As(judge(q), &d) {
			t.Errorf("all of %q are deleted alone", key)
		}
	}
	t.Logf("%d requests", n)
}
