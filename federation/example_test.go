// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/memory"
)

// Two gateways want to be a volume's home. Both read the control record, and both swap it: one swap
// is applied, and the other is refused because the record has another revision by then.
func Example() {
	ctx := context.Background()
	var reg federation.Registry = memory.New()
	const volume = "2f9ad5c0-0d3b-4c5e-9d5f-0c8f3a1b7e42"
	ams := federation.Member{Gateway: "ams-1", Site: "ams", Incarnation: "a"}
	utr := federation.Member{Gateway: "utr-1", Site: "utr", Incarnation: "b"}

	// Revision 0: the record must not exist yet.
	rev, err := reg.SwapControl(ctx, volume, 0, federation.Control{Volume: volume, Epoch: 1, Home: ams,
		Members: []federation.Member{ams, utr}})
	fmt.Println("epoch 1:", err)

	takeover := func(home federation.Member) error {
		_, err := reg.SwapControl(ctx, volume, rev, federation.Control{Volume: volume, Epoch: 2, Home: home,
			Members: []federation.Member{ams, utr}})
		return err
	}
	fmt.Println("utr-1 takes over:", takeover(utr))
	fmt.Println("ams-1 is too late:", errors.Is(takeover(ams), federation.ErrConflict))

	now, _, err := reg.GetControl(ctx, volume)
	fmt.Println("home:", now.Home, "epoch:", now.Epoch, err)
	// Output:
	// epoch 1: <nil>
	// utr-1 takes over: <nil>
	// ams-1 is too late: true
	// home: utr-1@utr/b epoch: 2 <nil>
}
