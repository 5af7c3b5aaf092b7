// SPDX-License-Identifier: Apache-2.0

package operatorcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/caching"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// answerTime is how long a gateway may take to tell how its pool is.
const answerTime = 4 * time.Second

// asker asks gateways how their pools are.
func asker(cl *access.Client) func(context.Context, federation.Site, federation.Gateway) (plan.Pool, error) {
	return func(ctx context.Context, s federation.Site, g federation.Gateway) (p plan.Pool, err error) {
		var said caching.Status
		err = cl.Call(ctx, answerTime, s, g, func(ctx context.Context, f forwardpb.ForwardClient) error {
			reply, err := f.Cache(ctx, &forwardpb.CacheRequest{})
			if err != nil {
				return err
			}
			if err := json.Unmarshal(reply.GetJson(), &said); err != nil {
				return fmt.Errorf("what gateway %s says is not understood: %w", g.Name, err)
			}
			return nil
		})
		if err == nil && said.Pool.Report == nil {
			err = errors.New("it is of an earlier version: upgrade it")
		}
		if err == nil && said.Pool.Report.At.IsZero() {
			err = errors.New("it has not looked yet, or nobody answers it")
			if c := said.Pool.Report.Conditions; len(c) > 0 {
				err = errors.New(c[0].Message)
			}
		}
		if err != nil {
			return p, err
		}
		if said.Pool.Incarnation != g.Incarnation {
			return p, fmt.Errorf("its pool is %s, and the one that registered is %s: it starts", said.Pool.Incarnation, g.Incarnation)
		}
		p = plan.Pool{Limit: said.Pool.Limit, Used: said.Pool.Used, Kept: said.Pool.Kept, Report: *said.Pool.Report}
		for _, v := range said.Volumes {
			p.Volumes = append(p.Volumes, plan.PoolVolume{Name: v.Volume, Log: v.Log, Metadata: v.Metadata,
				Cache: v.Once + v.Often + v.Pinned, Reserve: v.Reserve, Asked: v.Asked})
		}
		return p, nil
	}
}
