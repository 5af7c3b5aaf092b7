// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/gateway/mending"
	"github.com/weir-storage/weir/gateway/objects"
	"github.com/weir-storage/weir/store"
)

// Objects returns the objects of a volume's checkpoints in one store.
func Objects(in store.Store, volume string) checkpoint.Objects {
	return objects.Set{Store: in, Volume: volume}
}

// piece is how much of an object travels at a time, in bytes.
const piece = 1 << 20

// Send calls send with the pieces of an object of a volume's checkpoint in this site's store, for
// another gateway.
func (k *Keeper) Send(ctx context.Context, volume, name string, send func(piece []byte) error) error {
	from := k.cfg.Store
	switch {
	case from == nil:
		return errors.New("this site has no store")
	case !strings.HasPrefix(name, volume+"/c/") && !strings.HasPrefix(name, volume+"/m/"):
		return fmt.Errorf("%q is no object of a checkpoint of volume %s", name, volume)
	}
	b, err := mending.Object(ctx, from, name)
	for len(b) > 0 && err == nil {
		n := min(len(b), piece)
		err = send(b[:n])
		b = b[n:]
	}
	return err
}
