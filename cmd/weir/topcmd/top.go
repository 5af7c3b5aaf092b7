// SPDX-License-Identifier: Apache-2.0

// Package topcmd has `weir top`: what clients do with volumes, live.
package topcmd

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/nfs"
	"github.com/weir-storage/weir/gateway/report"
)

// answerTime is how long one gateway may take to answer.
const answerTime = 2 * time.Second

type options struct {
	output, site string
	interval     time.Duration
	count, rows  int
}

// Command is `weir top`.
func Command(sh *cli.Shell, connect access.Connector) *cobra.Command {
	var o options
	opener := access.NewOpener(sh.Getenv, connect)
	c := &cobra.Command{
		Use: "top", Short: "Show what clients do with volumes, live", Args: cli.Args(cobra.NoArgs),
		Long: "Asks the gateways of your organization what their clients do, and shows it per second: by\n" +
			"volume, with the lag of its copies, and by client. The busiest come first.",
		Example: "  weir top\n  weir top --site ams --interval 10s\n  weir top --count 1 -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			return o.run(c.Context(), sh, cl)
		},
	}
	opener.Flags(c)
	cli.OutputFlag(c, &o.output)
	f := c.Flags()
	f.StringVar(&o.site, "site", "", "only gateways of the site `NAME`")
	f.DurationVar(&o.interval, "interval", 2*time.Second, "`TIME` between two looks")
	f.IntVar(&o.count, "count", 0, "end after `N` tables; 0: go on until it is interrupted")
	f.IntVar(&o.rows, "rows", 20, "show at most `N` volumes and clients; 0: all")
	return c
}

func (o *options) check() error {
	switch {
	case o.interval < 100*time.Millisecond:
		return cli.Usage("--interval %v: write at least 100ms", o.interval)
	case o.count < 0:
		return cli.Usage("--count %d: write how many tables to show, or 0 to go on", o.count)
	case o.rows < 0:
		return cli.Usage("--rows %d: write how many lines to show, or 0 for all", o.rows)
	}
	return cli.CheckOutput(o.output)
}

// run looks again and again, and shows what happened between two looks.
func (o *options) run(ctx context.Context, sh *cli.Shell, cl *access.Client) error {
	sites, err := cl.Registry.Sites(ctx)
	if err != nil {
		return err
	}
	if o.site != "" {
		s, err := access.SiteNamed(sites, o.site)
		if err != nil {
			return err
		}
		sites = []federation.SiteStatus{s}
	}
	before := look(ctx, sh.Now, cl, sites)
	for n := 1; sh.Pause(ctx, o.interval); n++ {
		now := look(ctx, sh.Now, cl, sites)
		r := compare(before, now)
		if o.output == "json" {
			err = cli.WriteJSON(sh.Out, r)
		} else {
			err = r.write(sh.Out, o.rows, cli.Terminal(sh.Out))
		}
		if err != nil || n == o.count {
			return err
		}
		before = now
	}
	return nil
}

// sample is what the gateways said at one moment.
type sample struct {
	at      time.Time
	answers map[string]answer // by gateway
}

type answer struct {
	site     string
	err      error
	activity []nfs.Activity
	volumes  []report.VolumeStatus
}

// look asks all gateways at once.
func look(ctx context.Context, now func() time.Time, cl *access.Client, sites []federation.SiteStatus) sample {
	var mu sync.Mutex
	out := sample{at: now(), answers: map[string]answer{}}
	var work sync.WaitGroup
	for _, s := range sites {
		for _, g := range s.Site.Gateways {
			work.Go(func() {
				a := answer{site: s.Site.Name}
				a.err = cl.Call(ctx, answerTime, s.Site, g, func(ctx context.Context, f forwardpb.ForwardClient) error {
					r, err := f.Activity(ctx, &forwardpb.ActivityRequest{})
					if err != nil {
						return err
					}
					if err := json.Unmarshal(r.GetJson(), &a.activity); err != nil {
						return err
					}
					st, err := f.Status(ctx, &forwardpb.StatusRequest{})
					if err != nil {
						return err
					}
					return json.Unmarshal(st.GetJson(), &a.volumes)
				})
				mu.Lock()
				defer mu.Unlock()
				out.answers[g.Name] = a
			})
		}
	}
	work.Wait()
	return out
}
