// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/store/memory"
)

// An object never changes. Who puts it twice has done no harm, and who puts another one under its
// name is refused.
func Example() {
	ctx := context.Background()
	var s store.Store = memory.New()
	put := func(text string) error {
		return s.Put(ctx, "volume/7-hash", int64(len(text)), bytes.NewReader([]byte(text)))
	}
	fmt.Println("put:", put("seven blocks"))
	fmt.Println("put again:", put("seven blocks"))
	fmt.Println("another object is refused:", errors.Is(put("eight blocks!"), store.ErrConflict))

	part := make([]byte, 6)
	if err := s.GetRange(ctx, "volume/7-hash", 6, part); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("bytes 6 to 11: %s\n", part)
	err := s.GetRange(ctx, "volume/7-hash", 10, part)
	fmt.Println("the object ends before:", errors.Is(err, store.ErrShort))

	err = s.List(ctx, "volume/", func(i store.Info) error {
		fmt.Println(i.Name, i.Size)
		return nil
	})
	fmt.Println("listed:", err)
	// Output:
	// put: <nil>
	// put again: <nil>
	// another object is refused: true
	// bytes 6 to 11: blocks
	// the object ends before: true
	// volume/7-hash 12
	// listed: <nil>
}
