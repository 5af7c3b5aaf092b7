// SPDX-License-Identifier: Apache-2.0

// Package cachecmd has `weir cache` and `weir warm`: what gateways keep of volumes, and bringing
// data to where it will be read.
package cachecmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/caching"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// answerTime is how long one gateway may take to answer.
const answerTime = 5 * time.Second

// Report is what one gateway keeps: `weir cache -o json` is a list of them.
type Report struct {
	Gateway string `json:"gateway"`
	Site    string `json:"site"`
	Problem string `json:"problem,omitempty"` // why nothing is known
	*caching.Status
}

// all returns the gateway's pools, also of an earlier version that has one.
func (r Report) all() []caching.Pool {
	if len(r.Pools) == 0 {
		return []caching.Pool{r.Pool}
	}
	return r.Pools
}

// Command is `weir cache`.
func Command(sh *cli.Shell, connect access.Connector) *cobra.Command {
	var output, site string
	opener := access.NewOpener(sh.Getenv, connect)
	c := &cobra.Command{
		Use: "cache [VOLUME]", Short: "Show what gateways keep of volumes, and how often it was there",
		Args: cli.Args(cobra.MaximumNArgs(1)),
		Long: "Asks the gateways of your organization what they keep on their pools to be read: parts of the\n" +
			"log that a store has too, blocks that were read from elsewhere once, and blocks that are read\n" +
			"often. PINNED is what its policy pins. HITS is the share of reads, of those that memory did not\n" +
			"answer, that found the block on the pool.",
		Example: "  weir cache\n  weir cache data --site ams -o json",
		RunE: func(c *cobra.Command, a []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			volume := ""
			if len(a) > 0 {
				v, err := cl.Living(c.Context(), a[0])
				if err != nil {
					return err
				}
				volume = v.UUID
			}
			sites, err := sitesOf(c.Context(), cl, site)
			if err != nil {
				return err
			}
			all := ask(c.Context(), cl, sites, volume)
			if output == "json" {
				return cli.WriteJSON(sh.Out, all)
			}
			return write(sh.Out, all)
		},
	}
	opener.Flags(c)
	cli.OutputFlag(c, &output)
	c.Flags().StringVar(&site, "site", "", "only gateways of the site `NAME`")
	return c
}

// sitesOf returns the site of that name, or all.
func sitesOf(ctx context.Context, cl *access.Client, name string) ([]federation.SiteStatus, error) {
	sites, err := cl.Registry.Sites(ctx)
	if err != nil || name == "" {
		return sites, err
	}
	s, err := access.SiteNamed(sites, name)
	return []federation.SiteStatus{s}, err
}

// ask asks all gateways at once. volume is the UUID of the only volume that is wanted; empty: all.
func ask(ctx context.Context, cl *access.Client, sites []federation.SiteStatus, volume string) []Report {
	var out []*Report
	var work sync.WaitGroup
	for _, s := range sites {
		for _, g := range s.Site.Gateways {
			r := &Report{Gateway: g.Name, Site: s.Site.Name}
			out = append(out, r)
			work.Go(func() {
				err := cl.Call(ctx, answerTime, s.Site, g, func(ctx context.Context, f forwardpb.ForwardClient) error {
					reply, err := f.Cache(ctx, &forwardpb.CacheRequest{})
					if err != nil {
						return err
					}
					return json.Unmarshal(reply.GetJson(), &r.Status)
				})
				if err != nil {
					r.Problem, r.Status = err.Error(), nil
				} else if volume != "" {
					r.Volumes = slices.DeleteFunc(r.Volumes, func(v caching.Volume) bool { return v.UUID != volume })
				}
			})
		}
	}
	work.Wait()
	all := make([]Report, len(out))
	for i, r := range out {
		all[i] = *r
	}
	return all
}

// reserve says how much of a volume others cannot push out, and of what its policy asks for.
func reserve(v caching.Volume) string {
	if v.Asked > v.Reserve {
		return cli.Bytes(v.Reserve) + " of " + cli.Bytes(v.Asked)
	}
	return amount(v.Reserve)
}

// write prints the reports for people.
func write(w io.Writer, all []Report) error {
	var volumes, pools cli.Table
	volumes.Row("VOLUME", "GATEWAY", "SITE", "POOL", "LOG", "ONCE", "OFTEN", "PINNED", "LIMIT", "RESERVE", "HITS", "FROM ELSEWHERE")
	pools.Row("GATEWAY", "SITE", "POOL", "SIZE", "USED", "KEPT TO READ", "MEMORY", "MEMORY HITS")
	for _, r := range all {
		if r.Status == nil {
			continue
		}
		memory, hits := cli.Bytes(r.Memory.Used), share(r.Memory.Hits, r.Memory.Misses)
		for _, p := range r.all() {
			pools.Row(r.Gateway, r.Site, cmp.Or(p.Name, "-"), cli.Bytes(p.Limit), cli.Bytes(p.Used), cli.Bytes(p.Kept), memory, hits)
			memory, hits = "", "" // all pools share it
		}
		for _, v := range r.Volumes {
			volumes.Row(v.Volume, r.Gateway, r.Site, pool(v), cli.Bytes(v.Segments), cli.Bytes(v.Once), cli.Bytes(v.Often), pins(v),
				amount(v.Limit), reserve(v), share(v.Reads.Log+v.Reads.Cache, v.Reads.Elsewhere),
				cli.Bytes(int64(v.Reads.ElsewhereBytes+v.Outlined)))
		}
	}
	if err := volumes.Write(w); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := pools.Write(w); err != nil {
		return err
	}
	for _, r := range all {
		if r.Status == nil {
			continue
		}
		for _, v := range r.Volumes {
			for _, said := range problems(v) {
				if _, err := fmt.Fprintf(w, "\n%s: %s: %s\n", r.Gateway, v.Volume, said); err != nil {
					return err
				}
			}
		}
	}
	for _, r := range all {
		if r.Problem != "" {
			if _, err := fmt.Fprintf(w, "\n%s: %s\n", r.Gateway, r.Problem); err != nil {
				return err
			}
		}
	}
	return nil
}

// problems says what is not as the volume's policy asks for.
func problems(v caching.Volume) (out []string) {
	if v.Pins != nil && v.Pins.Problem != "" {
		out = append(out, "pins: "+v.Pins.Problem)
	}
	if v.Moves != nil && v.Moves.Problem != "" {
		out = append(out, fmt.Sprintf("it stays on pool %s, and does not move to %s: %s", v.Pool, v.Moves.To, v.Moves.Problem))
	}
	if v.Unmatched != "" {
		out = append(out, v.Unmatched)
	}
	return out
}

// pool says on which pool a volume is, and how far it is on its way to another one.
func pool(v caching.Volume) string {
	if v.Moves != nil && v.Moves.Problem == "" {
		return fmt.Sprintf("%s > %s (%s)", v.Pool, v.Moves.To, cli.Bytes(v.Moves.Bytes))
	}
	return cmp.Or(v.Pool, "-")
}

// pins prints how much is pinned, and of how much if that is not all. What is not sealed yet is in
// the log.
func pins(v caching.Volume) string {
	if v.Pins == nil {
		return amount(v.Pinned)
	}
	text := cli.Bytes(v.Pinned)
	if v.Pins.Left > 0 {
		text += " of " + cli.Bytes(v.Pins.Wanted)
	}
	return text
}

// amount prints bytes of which 0 means none.
func amount(n int64) string {
	if n == 0 {
		return "-"
	}
	return cli.Bytes(n)
}

// share prints how many of all were there.
func share(there, not uint64) string {
	if there+not == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(there)/float64(there+not))
}
