// SPDX-License-Identifier: Apache-2.0

package operatorcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/controllers"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/caching"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// answerTime is how long a gateway may take to tell how its pool is.
const answerTime = 4 * time.Second

// asker asks gateways how their pools are, by name.
func asker(cl *access.Client) func(context.Context, federation.Site, federation.Gateway, string) (plan.Pool, error) {
	return func(ctx context.Context, s federation.Site, g federation.Gateway, name string) (p plan.Pool, err error) {
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
		if r := (*access.Refusal)(nil); errors.As(err, &r) && r.Silent() {
			return p, fmt.Errorf("%w: %w", controllers.ErrSilent, err)
		}
		if err != nil {
			return p, err
		}
		if said.Pool.Incarnation != g.Incarnation {
			return p, fmt.Errorf("its pool is %s, and the one that registered is %s: it starts", said.Pool.Incarnation, g.Incarnation)
		}
		pool, err := named(said, name)
		if err == nil && pool.Report.At.IsZero() {
			err = errors.New("it has not looked yet, or nobody answers it")
			if c := pool.Report.Conditions; len(c) > 0 {
				err = errors.New(c[0].Message)
			}
		}
		if err != nil {
			return p, err
		}
		p = plan.Pool{Incarnation: pool.Incarnation, Labels: pool.Labels, Limit: pool.Limit, Used: pool.Used, Kept: pool.Kept,
			Report: *pool.Report}
		for _, v := range said.Volumes {
			if v.Pool != pool.Name {
				continue
			}
			p.Volumes = append(p.Volumes, plan.PoolVolume{Name: v.Volume, Log: v.Log, Metadata: v.Metadata,
				Cache: v.Once + v.Often + v.Pinned, Reserve: v.Reserve, Asked: v.Asked})
		}
		return p, nil
	}
}

// mainPool is what the operator calls the main pool of a gateway.
const mainPool = "main"

// named returns the pool of that name.
func named(said caching.Status, name string) (caching.Pool, error) {
	if len(said.Pools) == 0 && name == mainPool && said.Pool.Report != nil { // an earlier version has one pool
		return said.Pool, nil
	}
	i := slices.IndexFunc(said.Pools, func(p caching.Pool) bool { return p.Name == name })
	if i < 0 {
		var has []string
		for _, p := range said.Pools {
			has = append(has, p.Name)
		}
		if len(has) == 0 {
			return caching.Pool{}, errors.New("it is of an earlier version: upgrade it")
		}
		return caching.Pool{}, fmt.Errorf("it has no pool %q, but %s: correct spec.name, or pools of its configuration (the chart's "+
			"gateway.pools)", name, strings.Join(has, ", "))
	}
	if said.Pools[i].Report == nil {
		return caching.Pool{}, errors.New("it is of an earlier version: upgrade it")
	}
	return said.Pools[i], nil
}
