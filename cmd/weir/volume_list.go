// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/federation"
)

// VolumeLine is a volume in `weir volume list`; with -o json, a list of them.
type VolumeLine struct {
	Name      string           `json:"name"`
	UUID      string           `json:"uuid"`
	Owner     string           `json:"owner"`
	OwnerSite string           `json:"ownerSite,omitempty"` // whose cluster changes it; empty: a person of the owner does
	Size      federation.Bytes `json:"size"`                // as in volume.yaml
	Sites     []string         `json:"sites"`
	Home      string           `json:"home,omitempty"` // gateway; empty while it has none
	HomeSite  string           `json:"homeSite,omitempty"`
	Epoch     uint64           `json:"epoch,omitempty"`
	CreatedAt time.Time        `json:"createdAt,omitzero"`
	Deleted   bool             `json:"deleted"`
	DeletedAt time.Time        `json:"deletedAt,omitzero"`
}

func (sh *shell) volumeList(n *connection) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "list", Short: "List the federation's volumes", Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			cl, err := sh.open(n)
			if err != nil {
				return err
			}
			defer cl.close()
			lines, err := cl.list(c.Context())
			if err != nil {
				return err
			}
			if output == "json" {
				return writeJSON(sh.out, lines)
			}
			return writeVolumes(sh.out, lines)
		},
	}
	outputFlag(c, &output)
	return c
}

func outputFlag(c *cobra.Command, to *string) {
	c.Flags().StringVarP(to, "output", "o", "", "`FORM` of the output: json, or nothing for a table")
}

func checkOutput(form string) error {
	if form != "" && form != "json" {
		return usage("-o %q: write json, or leave it out for a table", form)
	}
	return nil
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func (c *client) list(ctx context.Context) ([]VolumeLine, error) {
	all, err := c.registry.ListVolumes(ctx)
	if err != nil {
		return nil, err
	}
	lines := make([]VolumeLine, 0, len(all))
	for _, a := range all {
		v := a.Volume
		l := VolumeLine{Name: v.Name, UUID: v.UUID, Owner: v.Owner, OwnerSite: v.OwnerSite, Size: v.Spec.Size, Sites: v.Sites, CreatedAt: v.CreatedAt, Deleted: v.Deleted, DeletedAt: v.DeletedAt}
		ctl, _, err := c.registry.GetControl(ctx, v.UUID)
		if err != nil && !isNotFound(err) {
			return nil, err
		}
		if err == nil {
			l.Home, l.HomeSite, l.Epoch = ctl.Home.Gateway, ctl.Home.Site, ctl.Epoch
		}
		lines = append(lines, l)
	}
	slices.SortFunc(lines, func(a, b VolumeLine) int { return cmp.Compare(a.Name, b.Name) })
	return lines, nil
}

func writeVolumes(w io.Writer, lines []VolumeLine) error {
	if len(lines) == 0 {
		_, err := fmt.Fprintln(w, "There are no volumes. `weir volume create -f volume.yaml` makes one.")
		return err
	}
	var b table
	b.row("NAME", "UUID", "OWNER", "SIZE", "SITES", "HOME", "EPOCH")
	for _, l := range lines {
		home, epoch := at(l.Home, l.HomeSite), fmt.Sprint(l.Epoch)
		if l.Deleted {
			home, epoch = "deleted "+stamp(l.DeletedAt), "-"
		} else if l.Home == "" {
			home, epoch = "none yet", "-"
		}
		b.row(l.Name, l.UUID, at(l.Owner, l.OwnerSite), l.Size.String(), strings.Join(l.Sites, ","), home, epoch)
	}
	return b.write(w)
}

// at is a gateway with its site.
func at(gateway, site string) string {
	if site == "" {
		return gateway
	}
	return gateway + " (" + site + ")"
}

// table is text in columns.
type table struct{ rows [][]string }

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range t.rows {
		if _, err := fmt.Fprintln(tw, strings.Join(r, "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}
