// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/weir-storage/weir/federation"
)

// TestWhatWasRefused: of a change that etcd answers with "no space" nobody knows whether it was
// applied. One that it had no time for was not.
func TestWhatWasRefused(t *testing.T) {
	c := &kv{ctx: t.Context(), cfg: Config{Endpoints: []string{"https://r:2379"}}}
	for err, want := range map[error]error{
		rpctypes.ErrNoSpace:         federation.ErrUnknown,
		rpctypes.ErrTooManyRequests: federation.ErrUnavailable,
	} {
		if got := c.changeError(t.Context(), err); !errors.Is(got, want) {
			t.Errorf("%v is %v, want %v", err, got, want)
		}
	}
}
