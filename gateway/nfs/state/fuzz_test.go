// SPDX-License-Identifier: Apache-2.0

package state

import (
	"testing"

	"github.com/weir-storage/weir/gateway/nfs/state/statetest"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// FuzzRecord starts a server with an arbitrary record of a client. It starts and can be used, or
// says what to do.
func FuzzRecord(f *testing.F) {
	var s statetest.Store
	tab, err := New(config(&s))
	if err != nil {
		f.Fatal(err)
	}
	x, _ := tab.ExchangeID(ExchangeArgs{Owner: "o", Verifier: [8]byte{1}})
	_, _ = tab.CreateSession(CreateArgs{ClientID: x.ClientID, Sequence: x.Sequence, Fore: xdr.ChannelAttrs{MaxRequests: 4}})
	if err := s.Load(func(_ string, v []byte) error { f.Add(v); return nil }); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"version":1,"verifier":"AAAAAAAAAAA=","sessions":[{"id":"AAA="}],"lastSession":"AA=="}`))
	f.Fuzz(func(_ *testing.T, value []byte) {
		var s statetest.Store
		_ = s.Save("client-1", value) // it never fails
		tab, err := New(config(&s))
		if err != nil {
			return
		}
		for _, c := range tab.Clients() {
			_, _ = tab.CreateSession(CreateArgs{ClientID: c.ID, Sequence: 1, Fore: xdr.ChannelAttrs{MaxRequests: 4}})
		}
		x, _ := tab.ExchangeID(ExchangeArgs{Owner: "o", Verifier: [8]byte{1}})
		_, _ = tab.CreateSession(CreateArgs{ClientID: x.ClientID, Sequence: x.Sequence, Fore: xdr.ChannelAttrs{MaxRequests: 4}})
	})
}
