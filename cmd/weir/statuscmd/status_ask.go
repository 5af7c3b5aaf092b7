// SPDX-License-Identifier: Apache-2.0

package statuscmd

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// statusTime is how long one gateway may take to answer.
const statusTime = 2 * time.Second

// answer is what a gateway said of its volumes, or why it said nothing.
type answer struct {
	volumes []gateway.VolumeStatus
	err     error
}

func (a answer) volume(uuid string) (gateway.VolumeStatus, bool) {
	for _, v := range a.volumes {
		if v.UUID == uuid {
			return v, true
		}
	}
	return gateway.VolumeStatus{}, false
}

// refused reports whether the gateway answered that the caller may not ask.
func (a answer) refused() bool {
	var r *access.Refusal
	return errors.As(a.err, &r) && r.Code == codes.PermissionDenied
}

// ask asks all gateways at once about one volume, or about all when uuid is "". It also asks
// gateways without a heartbeat: one that is only cut off from the registry goes on serving
// (protocol-4).
func ask(ctx context.Context, cl *access.Client, sites []federation.SiteStatus, uuid string) map[string]answer {
	var mu sync.Mutex
	out := map[string]answer{}
	var work sync.WaitGroup
	for _, s := range sites {
		for _, g := range s.Site.Gateways {
			work.Go(func() {
				var a answer
				a.err = cl.Call(ctx, statusTime, s.Site, g, func(ctx context.Context, f forwardpb.ForwardClient) error {
					r, err := f.Status(ctx, &forwardpb.StatusRequest{Volume: uuid})
					if err != nil {
						return err
					}
					return json.Unmarshal(r.GetJson(), &a.volumes)
				})
				mu.Lock()
				defer mu.Unlock()
				out[g.Name] = a
			})
		}
	}
	work.Wait()
	return out
}
