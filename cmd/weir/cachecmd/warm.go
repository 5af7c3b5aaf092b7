// SPDX-License-Identifier: Apache-2.0

package cachecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// WarmReport is the output of `weir warm -o json`, in bytes of sealed data.
type WarmReport struct {
	Volume  string  `json:"volume"`
	Path    string  `json:"path"`
	Gateway string  `json:"gateway"`
	Files   uint64  `json:"files"`
	Bytes   uint64  `json:"bytes"`
	Moved   uint64  `json:"moved"`
	Left    uint64  `json:"left"` // for which there was no room
	Seconds float64 `json:"seconds"`
}

// longest bounds a run of `weir warm`.
const longest = 7 * 24 * time.Hour

// WarmCommand is `weir warm`.
func WarmCommand(sh *cli.Shell, connect access.Connector) *cobra.Command {
	var output, site string
	opener := access.NewOpener(sh.Getenv, connect)
	c := &cobra.Command{
		Use: "warm VOLUME [PATH]", Short: "Bring data to a site before it is read", Args: cli.Args(cobra.RangeArgs(1, 2)),
		Long: "Brings the data of a file, or of all files below a directory, to the pool of a site's\n" +
			"gateway, so that reading it there needs no other site and no store. PATH begins at the\n" +
			"volume's root; without it, all files are meant. What is there already does not move. The\n" +
			"command may be interrupted and repeated. What was brought goes again when others need the\n" +
			"room: cache.reserve of the volume keeps it.",
		Example: "  weir warm data --site ams\n  weir warm data /runs/2026 --site ams",
		RunE: func(c *cobra.Command, a []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			path := "/"
			if len(a) > 1 {
				path = a[1]
			}
			return warm(c.Context(), sh, cl, a[0], path, site, output)
		},
	}
	opener.Flags(c)
	cli.OutputFlag(c, &output)
	c.Flags().StringVar(&site, "site", "", "`NAME` of the site; by default that of --config")
	return c
}

func warm(ctx context.Context, sh *cli.Shell, cl *access.Client, volume, path, site, output string) error {
	v, err := cl.Living(ctx, volume)
	if err != nil {
		return err
	}
	if site == "" {
		return cli.Usage("it is not known where to bring the data: give --site NAME; volume %s has copies at %s", volume,
			cmp.Or(strings.Join(v.Sites, ", "), "no site"))
	}
	sites, err := sitesOf(ctx, cl, site)
	if err != nil {
		return err
	}
	s := sites[0]
	var g *federation.Gateway
	for i := range s.Site.Gateways {
		if s.Alive[s.Site.Gateways[i].Name] {
			g = &s.Site.Gateways[i]
			break
		}
	}
	if g == nil {
		return fmt.Errorf("site %s has no gateway that is alive: start one", site)
	}
	began := sh.Now()
	show := progress{sh: sh, live: cli.Terminal(sh.Err)}
	var last *forwardpb.WarmProgress
	err = cl.Call(ctx, longest, s.Site, *g, func(ctx context.Context, f forwardpb.ForwardClient) error {
		stream, err := f.Warm(ctx, &forwardpb.WarmRequest{Volume: v.UUID, Path: path})
		if err != nil {
			return err
		}
		for {
			p, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			last = p
			show.tell(p)
		}
	})
	show.end()
	if err != nil {
		return err
	}
	if !last.GetDone() {
		return fmt.Errorf("gateway %s ended before it was done: run the command again", g.Name)
	}
	r := WarmReport{Volume: volume, Path: path, Gateway: g.Name, Files: last.GetFiles(), Bytes: last.GetBytes(), Moved: last.GetMoved(),
		Left: last.GetLeft(), Seconds: sh.Now().Sub(began).Seconds()}
	if output == "json" {
		err = cli.WriteJSON(sh.Out, r)
	} else {
		err = sh.Say("volume %s: %d files, %s; %s came to %s, the rest was there, in %.1f s\n", volume, r.Files, cli.Bytes(int64(r.Bytes)),
			cli.Bytes(int64(r.Moved)), cli.With(g.Name, site), r.Seconds)
	}
	if err == nil && r.Left > 0 {
		err = fmt.Errorf("%s found no place on the pool of %s: raise cache.size or cache.reserve of volume %s, or the pool's size; "+
			"`weir cache` shows what is there", cli.Bytes(int64(r.Left)), g.Name, volume)
	}
	return err
}

// progress shows how far it is, on one line of a terminal, or now and then.
type progress struct {
	sh    *cli.Shell
	live  bool
	began time.Time // of fetching
	last  time.Time
	shown bool
}

// tellEvery is how often a line is written where there is no terminal.
const tellEvery = 10 * time.Second

func (p *progress) tell(w *forwardpb.WarmProgress) {
	now := p.sh.Now()
	if w.GetDone() || !p.live && now.Sub(p.last) < tellEvery {
		return
	}
	p.last = now
	if !w.GetCounting() && p.began.IsZero() {
		p.began = now
	}
	line := line(w, now.Sub(p.began).Seconds())
	if p.live {
		p.sh.Tell("\r\x1b[K%s", line)
		p.shown = true
	} else {
		p.sh.Tell("%s\n", line)
	}
}

// end leaves the line of a terminal.
func (p *progress) end() {
	if p.shown {
		p.sh.Tell("\r\x1b[K")
	}
}

// line says how far it is, after some seconds of fetching.
func line(w *forwardpb.WarmProgress, seconds float64) string {
	if w.GetCounting() {
		return fmt.Sprintf("counting: %d files, %s, of which %s are not there", w.GetFiles(), cli.Bytes(int64(w.GetBytes())),
			cli.Bytes(int64(w.GetMissing())))
	}
	moved := w.GetMoved() + w.GetLeft()
	out := fmt.Sprintf("%d files, %s of %s", w.GetFiles(), cli.Bytes(int64(moved)), cli.Bytes(int64(w.GetMissing())))
	if seconds >= 1 && moved > 0 {
		rate := float64(moved) / seconds
		left := float64(w.GetMissing()-min(moved, w.GetMissing())) / rate
		out += fmt.Sprintf(", %s/s, %s left", cli.Bytes(int64(rate)), cli.Span(left))
	}
	return out
}
