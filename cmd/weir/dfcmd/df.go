// SPDX-License-Identifier: Apache-2.0

// Package dfcmd has `weir df`: what a volume takes in stores and on pools, and for what.
package dfcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/space"
)

// longest bounds a count: a gateway reads all metadata of the volume, and lists its site's store.
const longest = 15 * time.Minute

// Report is what one gateway counts: `weir df -o json` is a list of them.
type Report struct {
	Gateway string        `json:"gateway"`
	Site    string        `json:"site"`
	Problem string        `json:"problem,omitempty"` // why nothing is known
	Space   *space.Report `json:"space,omitempty"`
}

// Command is `weir df`.
func Command(sh *cli.Shell, connect access.Connector) *cobra.Command {
	var output string
	opener := access.NewOpener(sh.Getenv, connect)
	c := &cobra.Command{
		Use: "df VOLUME", Short: "Show what a volume takes in stores, and for what", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Asks the gateways of the volume's sites to count what is in their site's store. LIVE is blocks of\n" +
			"files, SNAPSHOTS blocks that only snapshots use, DEAD what is left of segments before the newest\n" +
			"checkpoint, and LOG what is left of those after it. MOVED segments have their used blocks\n" +
			"in packs, and CONDEMNED ones have none; both are about to be dropped. ORPHANS are objects in the\n" +
			"volume's folder that nobody knows. All columns add up to STORE, which is all that the store\n" +
			"lists. WAITING is not in the store yet. Lent stores are not counted. It fails if a store lacks\n" +
			"something that the log says is there. USED of SIZE, and FILES OF how many there may be, are what\n" +
			"clients see with df.",
		Example: "  weir df data\n  weir df data -o json",
		RunE: func(c *cobra.Command, a []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			v, err := cl.Living(c.Context(), a[0])
			if err != nil {
				return err
			}
			all, err := ask(c.Context(), cl, v)
			if err != nil {
				return err
			}
			if output == "json" {
				err = cli.WriteJSON(sh.Out, all)
			} else {
				err = write(sh.Out, all)
			}
			if err == nil {
				err = verdict(v.Name, all)
			}
			return err
		},
	}
	opener.Flags(c)
	cli.OutputFlag(c, &output)
	return c
}

// ask asks all gateways of the volume's sites at once.
func ask(ctx context.Context, cl *access.Client, v federation.Volume) ([]Report, error) {
	sites, err := cl.Registry.Sites(ctx)
	if err != nil {
		return nil, err
	}
	var out []*Report
	var work sync.WaitGroup
	for _, s := range sites {
		if !slices.Contains(v.Sites, s.Site.Name) {
			continue
		}
		for _, g := range s.Site.Gateways {
			r := &Report{Gateway: g.Name, Site: s.Site.Name}
			out = append(out, r)
			work.Go(func() {
				err := cl.Call(ctx, longest, s.Site, g, func(ctx context.Context, f forwardpb.ForwardClient) error {
					reply, err := f.Space(ctx, &forwardpb.SpaceRequest{Volume: v.UUID})
					if err != nil {
						return err
					}
					return json.Unmarshal(reply.GetJson(), &r.Space)
				})
				if err != nil {
					r.Problem, r.Space = err.Error(), nil
				}
			})
		}
	}
	work.Wait()
	all := make([]Report, len(out))
	for i, r := range out {
		all[i] = *r
	}
	return all, nil
}

// columns are the kinds that have a column of the table.
var columns = []space.Kind{space.Live, space.Snapshots, space.Dead, space.Log, space.Moved, space.Condemned, space.Checkpoints,
	space.Uncounted, space.Orphans}

// write prints the reports for people.
func write(w io.Writer, all []Report) error {
	var stores, pools cli.Table
	head := []string{"SITE", "GATEWAY"}
	for _, k := range columns {
		head = append(head, strings.ToUpper(string(k)))
	}
	stores.Row(append(head, "STORE", "OBJECTS", "WAITING")...)
	pools.Row("SITE", "GATEWAY", "POOL LOG", "POOL METADATA", "LACKING", "USED", "SIZE", "FILES", "OF")
	var said []string
	for _, r := range all {
		switch {
		case r.Space == nil:
			said = append(said, fmt.Sprintf("%s: %s", r.Gateway, r.Problem))
			continue
		case r.Space.Store == nil:
			said = append(said, fmt.Sprintf("%s: site %s has no store", r.Gateway, r.Site))
		default:
			s := r.Space.Store
			row := []string{r.Site, r.Gateway}
			for _, k := range columns {
				row = append(row, amount(s.Of(k).Bytes))
			}
			stores.Row(append(row, cli.Bytes(s.Bytes), fmt.Sprint(s.Objects), amount(s.Waiting.Bytes))...)
			if n := s.Of(space.Orphans).Objects; n > 0 {
				said = append(said, fmt.Sprintf("%s: %d objects are orphans, such as %s", r.Gateway, n, strings.Join(s.Strays, ", ")))
			}
			for _, d := range s.Differs {
				said = append(said, r.Gateway+": "+d)
			}
			if len(s.Differs) == 0 {
				said = append(said, fmt.Sprintf("%s: the columns add up to what the store of %s lists: %d objects, %d bytes", r.Gateway,
					r.Site, s.Objects, s.Bytes))
			}
		}
		if keys := r.Space.Keys; len(keys) > 1 || len(keys) == 1 && !keys[0].Newest {
			var parts []string
			for _, k := range keys {
				parts = append(parts, fmt.Sprintf("%s with data key %d", cli.Bytes(int64(k.Bytes)), k.Number))
			}
			said = append(said, fmt.Sprintf("%s: of what files and snapshots use are sealed: %s", r.Gateway, strings.Join(parts, ", ")))
		}
		held := []string{"-", "-", "-", "-"}
		if h := r.Space.Held; h != nil {
			held = []string{cli.Bytes(int64(h.Bytes)), cli.Bytes(int64(h.Size)), fmt.Sprint(h.Files), fmt.Sprint(h.MaxFiles)}
		}
		pools.Row(append([]string{r.Site, r.Gateway, cli.Bytes(r.Space.Pool.Log), cli.Bytes(r.Space.Pool.Metadata),
			amount(r.Space.Pool.Lacking)}, held...)...)
	}
	if err := stores.Write(w); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := pools.Write(w); err != nil {
		return err
	}
	for _, line := range said {
		if _, err := fmt.Fprintf(w, "\n%s\n", line); err != nil {
			return err
		}
	}
	return nil
}

// verdict returns an error if the figures of a store do not add up, or it lacks something.
func verdict(volume string, all []Report) error {
	for _, r := range all {
		if r.Space == nil || r.Space.Store == nil {
			continue
		}
		var sum space.Amount
		for _, k := range columns {
			a := r.Space.Store.Of(k)
			sum.Objects, sum.Bytes = sum.Objects+a.Objects, sum.Bytes+a.Bytes
		}
		if sum != r.Space.Store.Amount {
			return fmt.Errorf("volume %s at %s: the parts have %d objects and %d bytes, and the store lists %d and %d: is this weir as "+
				"new as the gateway?", volume, r.Gateway, sum.Objects, sum.Bytes, r.Space.Store.Objects, r.Space.Store.Bytes)
		}
		if len(r.Space.Store.Differs) > 0 {
			return fmt.Errorf("volume %s at %s: the store differs from what the log says: %s", volume, r.Gateway,
				r.Space.Store.Differs[0])
		}
	}
	return nil
}

// amount prints bytes of which 0 means none.
func amount(n int64) string {
	if n == 0 {
		return "-"
	}
	return cli.Bytes(n)
}
