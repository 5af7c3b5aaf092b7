// SPDX-License-Identifier: Apache-2.0

package volumecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
)

// VolumeLine is one volume in `weir volume list`. With -o json the command prints a list of them.
type VolumeLine struct {
	Name      string           `json:"name"`
	UUID      string           `json:"uuid"`
	Owner     string           `json:"owner"`
	OwnerSite string           `json:"ownerSite,omitempty"` // its cluster changes the volume; empty: a person of Owner does
	Size      federation.Bytes `json:"size"`                // as in volume.yaml
	// Used is how much it holds, and Held how much only its snapshots do, which Size does not
	// count, as its home reported last; nil: not known.
	Used      *federation.Bytes `json:"used,omitempty"`
	Held      *federation.Bytes `json:"held,omitempty"`
	Sites     []string          `json:"sites"`
	Blind     []string          `json:"blind,omitempty"` // those of Sites whose copies hold ciphertext only
	Home      string            `json:"home,omitempty"`  // gateway; empty while it has none
	HomeSite  string            `json:"homeSite,omitempty"`
	Epoch     uint64            `json:"epoch,omitempty"`
	CreatedAt time.Time         `json:"createdAt,omitzero"`
	Deleted   bool              `json:"deleted"`
	DeletedAt time.Time         `json:"deletedAt,omitzero"`
	PurgeAt   time.Time         `json:"purgeAt,omitzero"` // of a deleted one: when it goes for good
}

func listCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "list", Short: "List the federation's volumes", Args: cli.Args(cobra.NoArgs),
		Long: "Lists the volumes of the federation with their sites and homes. USED is what a volume holds, and\n" +
			"HELD what only its snapshots hold, as its home reported last. Volumes that were deleted stay in\n" +
			"the list until they are purged.",
		Example: "  weir volume list\n  weir volume list -o json",
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
			return writeVolumes(sh.Out, lines)
		},
	}
	cli.OutputFlag(c, &output)
	return c
}

func list(ctx context.Context, cl *access.Client) ([]VolumeLine, error) {
	all, err := cl.Registry.ListVolumes(ctx)
	if err != nil {
		return nil, err
	}
	lines := make([]VolumeLine, 0, len(all))
	for _, a := range all {
		v := a.Volume
		l := VolumeLine{Name: v.Name, UUID: v.UUID, Owner: v.Owner, OwnerSite: v.OwnerSite, Size: v.Spec.Size, Sites: v.Sites,
			Blind:     v.Blind,
			CreatedAt: v.CreatedAt, Deleted: v.Deleted, DeletedAt: v.DeletedAt}
		if v.Deleted {
			l.PurgeAt = v.PurgeAt()
		}
		ctl, _, err := cl.Registry.GetControl(ctx, v.UUID)
		if err != nil && !errors.Is(err, federation.ErrNotFound) {
			return nil, err
		}
		if err == nil {
			l.Home, l.HomeSite, l.Epoch = ctl.Home.Gateway, ctl.Home.Site, ctl.Epoch
			told, err := cl.Registry.ListObserved(ctx, v.UUID)
			if err != nil {
				return nil, err
			}
			for _, o := range told {
				if o.Gateway == ctl.Home.Gateway {
					l.Used, l.Held = &o.Used, o.Held
				}
			}
		}
		lines = append(lines, l)
	}
	slices.SortFunc(lines, func(a, b VolumeLine) int { return cmp.Compare(a.Name, b.Name) })
	return lines, nil
}

// marked are the names of sites, and which have a blind copy.
func marked(sites, blind []string) (out []string) {
	for _, s := range sites {
		if slices.Contains(blind, s) {
			s += "(blind)"
		}
		out = append(out, s)
	}
	return out
}

func bytesOf(b *federation.Bytes) string {
	if b == nil {
		return "-"
	}
	return cli.Bytes(int64(*b))
}

func writeVolumes(w io.Writer, lines []VolumeLine) error {
	if len(lines) == 0 {
		_, err := fmt.Fprintln(w, "There are no volumes. `weir volume create -f volume.yaml` makes one.")
		return err
	}
	var b cli.Table
	b.Row("NAME", "UUID", "OWNER", "SIZE", "USED", "HELD", "SITES", "HOME", "EPOCH")
	for _, l := range lines {
		home, epoch := cli.With(l.Home, l.HomeSite), fmt.Sprint(l.Epoch)
		if l.Deleted {
			home, epoch = "deleted, goes "+cli.Stamp(l.PurgeAt), "-"
		} else if l.Home == "" {
			home, epoch = "none yet", "-"
		}
		b.Row(l.Name, l.UUID, cli.With(l.Owner, l.OwnerSite), l.Size.String(), bytesOf(l.Used), bytesOf(l.Held),
			strings.Join(marked(l.Sites, l.Blind), ","), home, epoch)
	}
	return b.Write(w)
}
