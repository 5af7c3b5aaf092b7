// SPDX-License-Identifier: Apache-2.0

package volumecmd

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/quantity"
)

func upkeepCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var files int64
	var every time.Duration
	var scrubRate, packRate, hours string
	c := &cobra.Command{
		Use: "upkeep VOLUME", Short: "Say how many files a volume may hold, and how it is scrubbed and packed",
		Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Says how many files a volume may hold, how often and how fast its copies are read again, and how\n" +
			"fast and when its live blocks move into packs: the fields quota, scrub and compaction in\n" +
			"volume.yaml. What has no flag stays as it is; 0, or empty hours, is the default. Volumes of a\n" +
			"cluster have this in their policy.",
		Example: "  weir volume upkeep data --files 1000000\n" +
			"  weir volume upkeep data --scrub-every 72h --pack-rate 50Mi --pack-hours 22:00-06:00",
		RunE: func(c *cobra.Command, a []string) error {
			var says federation.VolumeSpec
			var err error
			if says.Scrub.Rate, err = rate("scrub-rate", scrubRate); err != nil {
				return err
			}
			if says.Compaction.Rate, err = rate("pack-rate", packRate); err != nil {
				return err
			}
			says.Quota.Files, says.Scrub.Every, says.Compaction.Hours = files, federation.Duration(every), hours
			for part, problems := range map[string][][3]string{"quota": says.Quota.Problems(), "scrub": says.Scrub.Problems(),
				"compaction": says.Compaction.Problems()} {
				for _, x := range problems {
					return cli.Usage("%s.%s: %s: %s", part, x[0], x[1], x[2])
				}
			}
			return withSnapshots(opener, func(cl *access.Client) error {
				name, changed, err := sayInSpec(c.Context(), cl, a[0], "quota, scrub and compaction", func(s *federation.VolumeSpec) bool {
					was := []any{s.Quota, s.Scrub, s.Compaction}
					for flag, set := range map[string]func(){
						"files":       func() { s.Quota.Files = says.Quota.Files },
						"scrub-every": func() { s.Scrub.Every = says.Scrub.Every },
						"scrub-rate":  func() { s.Scrub.Rate = says.Scrub.Rate },
						"pack-rate":   func() { s.Compaction.Rate = says.Compaction.Rate },
						"pack-hours":  func() { s.Compaction.Hours = says.Compaction.Hours },
					} {
						if c.Flags().Changed(flag) {
							set()
						}
					}
					return was[0] != s.Quota || was[1] != s.Scrub || was[2] != s.Compaction
				})
				switch {
				case err != nil:
					return err
				case !changed:
					return sh.Say("volume %s has this already\n", name)
				}
				return sh.Say("volume %s: its gateways go by this from now on\n", name)
			})
		},
	}
	c.Flags().Int64Var(&files, "files", 0, "the most files that it may hold")
	c.Flags().DurationVar(&every, "scrub-every", 0, "how often each copy is read again")
	c.Flags().StringVar(&scrubRate, "scrub-rate", "", "the most `BYTES` a second that a gateway reads for that")
	c.Flags().StringVar(&packRate, "pack-rate", "", "the most `BYTES` a second that move into packs")
	c.Flags().StringVar(&hours, "pack-hours", "", "`HOURS` of the day, in UTC, in which they move")
	return c
}

// rate reads the value of a flag; empty: 0.
func rate(flag, value string) (federation.Bytes, error) {
	if value == "" {
		return 0, nil
	}
	b, err := quantity.ParseBytes(value)
	if err != nil {
		return 0, cli.Usage("--%s: %v", flag, err)
	}
	return b, nil
}
