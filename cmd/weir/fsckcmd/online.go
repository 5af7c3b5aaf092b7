// SPDX-License-Identifier: Apache-2.0

package fsckcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/checking"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// longest bounds the check of one copy.
const longest = 14 * 24 * time.Hour

// target is a gateway that is to check its copy.
type target struct {
	site federation.Site
	federation.Gateway
}

// online has gateways check their copies, one after the other.
func online(ctx context.Context, sh *cli.Shell, opener *access.Opener, name string, o options, show *progress) ([]Result, error) {
	cl, err := opener.Open()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	v, err := cl.Living(ctx, name)
	if err != nil {
		return nil, err
	}
	targets, err := choose(ctx, cl, v, o)
	if err != nil {
		return nil, err
	}
	var all []Result
	checked := false
	for _, t := range targets {
		show.begin(t.Name)
		r := ask(ctx, cl, v, t, o, show)
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
		all = append(all, r)
		checked = checked || !r.Absent
	}
	if !checked {
		return all, fmt.Errorf("no gateway that was asked has a copy of volume %s that is open: %s", name, all[0].Problem)
	}
	return all, nil
}

// choose returns the gateways that are to check, the home first.
func choose(ctx context.Context, cl *access.Client, v federation.Volume, o options) (out []target, err error) {
	sites, err := cl.Registry.Sites(ctx)
	if err != nil {
		return nil, err
	}
	home := ""
	if ctl, _, err := cl.Registry.GetControl(ctx, v.UUID); err == nil {
		home = ctl.Home.Gateway
	} else if !errors.Is(err, federation.ErrNotFound) {
		return nil, err
	}
	if o.site != "" {
		if _, err := access.SiteNamed(sites, o.site); err != nil {
			return nil, err
		}
	}
	for _, s := range sites {
		for _, g := range s.Site.Gateways {
			var in bool
			switch {
			case o.gateway != "":
				in = g.Name == o.gateway
			case o.site != "":
				in = s.Site.Name == o.site
			case o.all:
				in = slices.Contains(v.Sites, s.Site.Name) || g.Name == home
			default:
				in = g.Name == home
			}
			if in {
				out = append(out, target{s.Site, g})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b target) int { return rank(a, home) - rank(b, home) })
	switch {
	case len(out) > 0:
		return out, nil
	case o.gateway != "":
		return nil, fmt.Errorf("gateway %q: no site has a gateway of this name: see `weir site list`", o.gateway)
	case o.site != "":
		return nil, fmt.Errorf("site %s has no gateway: start one, or name another site", o.site)
	}
	return nil, fmt.Errorf("volume %s has no home yet: %s", v.Name, access.MissingHome(v, sites))
}

func rank(t target, home string) int {
	if t.Name == home {
		return 0
	}
	return 1
}

// ask has one gateway check its copy.
func ask(ctx context.Context, cl *access.Client, v federation.Volume, t target, o options, show *progress) Result {
	r := Result{Gateway: t.Name, Site: t.site.Name}
	err := cl.Call(ctx, longest, t.site, t.Gateway, func(ctx context.Context, f forwardpb.ForwardClient) error {
		stream, err := f.Check(ctx, &forwardpb.CheckRequest{Volume: v.UUID, Data: o.data, Repair: o.repair})
		if err != nil {
			return err
		}
		for {
			part, err := stream.Recv()
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			case len(part.GetJson()) == 0:
				show.tell(checking.Progress{Step: part.GetStep(), Done: part.GetDone(), Total: part.GetTotal(), Bytes: part.GetBytes()})
			default:
				r.Problem = part.GetFailed()
				if err := json.Unmarshal(part.GetJson(), &r.Report); err != nil {
					return err
				}
			}
		}
	})
	var refused *access.Refusal
	switch {
	case errors.As(err, &refused) && refused.Code == codes.Unimplemented:
		r.Problem = fmt.Sprintf("gateway %s is of a release that has no check: update it", t.Name)
	case err != nil:
		r.Problem = err.Error()
		r.Absent = errors.As(err, &refused) && refused.Code == codes.NotFound
	case r.Report == nil:
		r.Problem = fmt.Sprintf("gateway %s ended before it was done: run the command again", t.Name)
	case r.Problem == "" && !r.Report.Complete && r.Report.Left() == 0:
		r.Problem = "the check is not complete"
	}
	return r
}
