// SPDX-License-Identifier: Apache-2.0

package volumecmd

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
)

func snapshotSchedule(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var keep []string
	var window time.Duration
	var directory string
	c := &cobra.Command{
		Use: "schedule VOLUME", Short: "Say which snapshots a volume gets by itself", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Says which snapshots a volume gets by itself, and how they are seen: the fields of snapshots in\n" +
			"volume.yaml. What was said before is replaced; without flags there are no scheduled snapshots from\n" +
			"then on, and no window. Snapshots that are there stay, but for the oldest of those that are kept.\n" +
			"Volumes of a cluster have this in their policy.",
		Example: "  weir volume snapshot schedule data --keep Hourly=24 --keep Daily=31 --window 1h",
		RunE: func(c *cobra.Command, a []string) error {
			p := snapshots.Policy{Window: federation.Duration(window), Directory: snapshots.Directory(directory)}
			for _, k := range keep {
				every, n, _ := strings.Cut(k, "=")
				count, err := strconv.Atoi(n)
				if err != nil {
					return cli.Usage("--keep %q: write how often, and how many are kept: Hourly=24", k)
				}
				p.Schedule = append(p.Schedule, snapshots.Schedule{Every: snapshots.Every(every), Keep: count})
			}
			for _, x := range p.Problems() {
				return cli.Usage("snapshots.%s: %s: %s", x[0], x[1], x[2])
			}
			return withSnapshots(opener, func(cl *access.Client) error {
				name, changed, err := sayInSpec(c.Context(), cl, a[0], "snapshots", func(s *federation.VolumeSpec) bool {
					was := s.Snapshots
					s.Snapshots = p
					return !reflect.DeepEqual(was, p)
				})
				switch {
				case err != nil:
					return err
				case !changed:
					return sh.Say("volume %s has this schedule already\n", name)
				}
				return sh.Say("volume %s: its home goes by this from now on; `weir volume snapshot list %[1]s` shows what there is\n", name)
			})
		},
	}
	c.Flags().StringArrayVar(&keep, "keep", nil, "`EVERY=N`: QuarterHourly, Hourly, Daily, Weekly or Monthly, and how many stay")
	c.Flags().DurationVar(&window, "window", 0, "for how long the volume can be looked at as of any second")
	c.Flags().StringVar(&directory, "directory", "", "Hidden, the default, or None: there is no .snapshots")
	return c
}

func trashCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var keep time.Duration
	c := &cobra.Command{
		Use: "trash VOLUME --keep TIME", Short: "Say for how long removed files can be restored", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Says for how long what is removed from a volume is kept in the directory .trash of its directory,\n" +
			"from where mv restores it: the field trash.keep in volume.yaml. With --keep 0 nothing is kept, and\n" +
			"what is there goes. It counts in the volume's size, and goes earlier if the volume gets full.\n" +
			"Volumes of a cluster have this in their policy. A whole volume is taken back by weir volume\n" +
			"undelete.",
		Example: "  weir volume trash data --keep 168h",
		RunE: func(c *cobra.Command, a []string) error {
			if !c.Flags().Changed("keep") {
				return cli.Usage("--keep is missing: say for how long, such as 168h, or 0 for not at all")
			}
			is := snapshots.Trash{Keep: federation.Duration(keep)}
			for _, x := range is.Problems() {
				return cli.Usage("--keep: trash.%s: %s: %s", x[0], x[1], x[2])
			}
			return withSnapshots(opener, func(cl *access.Client) error {
				name, changed, err := sayInSpec(c.Context(), cl, a[0], "trash", func(s *federation.VolumeSpec) bool {
					was := s.Trash
					s.Trash = is
					return was != is
				})
				switch {
				case err != nil:
					return err
				case !changed:
					return sh.Say("volume %s has this already\n", name)
				}
				return sh.Say("volume %s: its home goes by this from now on\n", name)
			})
		},
	}
	c.Flags().DurationVar(&keep, "keep", 0, "for how long")
	return c
}

// sayInSpec changes a part of a volume's spec, unless change says that it is so already. It returns
// the volume's name.
func sayInSpec(ctx context.Context, cl *access.Client, name, part string, change func(*federation.VolumeSpec) bool) (string, bool, error) {
	for try := 1; ; try++ {
		v, rev, err := cl.Find(ctx, name)
		switch {
		case err != nil:
			return "", false, err
		case v.Deleted:
			return "", false, fmt.Errorf("volume %s is deleted: take it out of the trash first, with weir volume undelete", v.Name)
		case v.OwnerSite != "":
			return "", false, fmt.Errorf("volume %s belongs to the cluster of site %s: write %s into its policy or its GeoVolume there",
				v.Name, v.OwnerSite, part)
		case !change(&v.Spec):
			return v.Name, false, nil
		}
		v.Generation++
		_, err = cl.Registry.UpdateVolume(ctx, rev, v)
		if try < updateTries && (errors.Is(err, federation.ErrConflict) || errors.Is(err, federation.ErrUnknown)) {
			continue
		}
		return v.Name, err == nil, access.Repeatable(err)
	}
}
