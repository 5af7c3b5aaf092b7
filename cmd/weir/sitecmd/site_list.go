// SPDX-License-Identifier: Apache-2.0

package sitecmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
)

// SiteLine is one site in `weir site list`. With -o json the command prints a list of them.
type SiteLine struct {
	Name         string           `json:"name"`
	Organization string           `json:"organization"`
	Region       string           `json:"region,omitempty"`
	Cluster      string           `json:"cluster,omitempty"` // UID of the Kubernetes cluster
	Gateways     []string         `json:"gateways"`
	Alive        []string         `json:"alive"`              // of the gateways
	Copies       int              `json:"copies"`             // of volumes that are not deleted
	Capacity     federation.Bytes `json:"capacity,omitempty"` // 0: not limited
	LostSince    time.Time        `json:"lostSince,omitzero"`
	LostBy       string           `json:"lostBy,omitempty"`
}

func listCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "list", Short: "List the federation's sites", Args: cli.Args(cobra.NoArgs),
		Long:    "Lists the sites of the federation, and how many of their gateways are alive.",
		Example: "  weir site list\n  weir site list -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			lines, err := list(c.Context(), cl)
			if err != nil {
				return err
			}
			if output == "json" {
				return cli.WriteJSON(sh.Out, lines)
			}
			return writeSites(sh.Out, lines)
		},
	}
	cli.OutputFlag(c, &output)
	return c
}

func list(ctx context.Context, cl *access.Client) ([]SiteLine, error) {
	sites, err := cl.Registry.Sites(ctx)
	if err != nil {
		return nil, err
	}
	volumes, err := cl.Registry.ListVolumes(ctx)
	if err != nil {
		return nil, err
	}
	losses, err := cl.Registry.ListLost(ctx)
	if err != nil {
		return nil, err
	}
	lines := make([]SiteLine, 0, len(sites))
	for _, s := range sites {
		l := SiteLine{Name: s.Site.Name, Organization: s.Site.Organization, Region: s.Site.Region, Cluster: s.Site.Cluster,
			Capacity: s.Site.Capacity, Gateways: []string{}, Alive: living(s)}
		for _, g := range s.Site.Gateways {
			l.Gateways = append(l.Gateways, g.Name)
		}
		for _, v := range volumes {
			if !v.Volume.Deleted && slices.Contains(v.Volume.Sites, l.Name) {
				l.Copies++
			}
		}
		for _, lost := range losses {
			if lost.Site == l.Name {
				l.LostSince, l.LostBy = lost.At, lost.By
			}
		}
		lines = append(lines, l)
	}
	return lines, nil
}

func writeSites(w io.Writer, lines []SiteLine) error {
	if len(lines) == 0 {
		_, err := fmt.Fprintln(w, "There are no sites. A gateway registers its site when it starts.")
		return err
	}
	var b cli.Table
	b.Row("NAME", "ORGANIZATION", "REGION", "GATEWAYS", "COPIES", "CAPACITY", "CLUSTER", "STATE")
	for _, l := range lines {
		state, capacity := "alive", "-"
		switch {
		case !l.LostSince.IsZero():
			state = "lost since " + cli.Stamp(l.LostSince)
		case len(l.Alive) == 0:
			state = "no gateway is alive"
		}
		if l.Capacity > 0 {
			capacity = l.Capacity.String()
		}
		b.Row(l.Name, l.Organization, cmp.Or(l.Region, "-"), fmt.Sprintf("%d of %d", len(l.Alive), len(l.Gateways)),
			fmt.Sprint(l.Copies), capacity, cmp.Or(l.Cluster, "-"), state)
	}
	return b.Write(w)
}
