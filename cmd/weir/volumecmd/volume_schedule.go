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
				text, err := saySchedule(c.Context(), cl, a[0], p)
				if err != nil {
					return err
				}
				return sh.Say("%s", text)
			})
		},
	}
	c.Flags().StringArrayVar(&keep, "keep", nil, "`EVERY=N`: QuarterHourly, Hourly, Daily, Weekly or Monthly, and how many stay")
	c.Flags().DurationVar(&window, "window", 0, "for how long the volume can be looked at as of any second")
	c.Flags().StringVar(&directory, "directory", "", "Hidden, the default, or None: there is no .snapshots")
	return c
}

// saySchedule writes it into the volume's record.
func saySchedule(ctx context.Context, cl *access.Client, name string, p snapshots.Policy) (string, error) {
	for try := 1; ; try++ {
		v, rev, err := cl.Find(ctx, name)
		switch {
		case err != nil:
			return "", err
		case v.Deleted:
			return "", fmt.Errorf("volume %s is deleted: take it out of the trash first, with weir volume undelete", v.Name)
		case v.OwnerSite != "":
			return "", fmt.Errorf("volume %s belongs to the cluster of site %s: write snapshots into its policy or its GeoVolume there",
				v.Name, v.OwnerSite)
		case reflect.DeepEqual(v.Spec.Snapshots, p):
			return fmt.Sprintf("volume %s has this schedule already\n", v.Name), nil
		}
		v.Spec.Snapshots = p
		v.Generation++
		_, err = cl.Registry.UpdateVolume(ctx, rev, v)
		if try < updateTries && (errors.Is(err, federation.ErrConflict) || errors.Is(err, federation.ErrUnknown)) {
			continue
		}
		if err != nil {
			return "", access.Repeatable(err)
		}
		return fmt.Sprintf("volume %s: its home goes by this from now on; `weir volume snapshot list %[1]s` shows what there is\n",
			v.Name), nil
	}
}
