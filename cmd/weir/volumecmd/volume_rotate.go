// SPDX-License-Identifier: Apache-2.0

package volumecmd

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/encryption"
	"github.com/weir-storage/weir/federation/quantity"
	"github.com/weir-storage/weir/federation/spec"
)

func rotateCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var every time.Duration
	var reseal bool
	c := &cobra.Command{
		Use: "rotate VOLUME", Short: "Have another data key follow", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Asks the volume's home for another data key, which all that is written soon after is sealed with:\n" +
			"it raises encryption.rotation in the volume's record. Segments that are there keep their key and\n" +
			"stay readable, until they are rewritten. If the home is away, the one after it does it, once.\n" +
			"With --reseal, what older keys sealed is sealed anew in the background, now and after each later\n" +
			"rotation; `weir df VOLUME` shows what is left. --reseal=false ends that, and replaces nothing.\n" +
			"`weir volume keys VOLUME` shows when it has followed. The federation's records must be signed:\n" +
			"before, there may be gateways that know one key for each volume.\n\n" +
			"With --every, nothing is replaced at once: a key that is so old is, from then on, by the home's\n" +
			"clock. --every 0 ends that. Volumes of a cluster have both in their policy or their GeoVolume.",
		Example: "  weir volume keys rotate data --reseal\n  weir volume keys rotate data --every 2160h",
		RunE: func(c *cobra.Command, a []string) error {
			says := c.Flags().Changed("reseal")
			schedule, target := c.Flags().Changed("every") || says && !reseal, int64(0)
			return withSnapshots(opener, func(cl *access.Client) error {
				var problems [][3]string
				name, changed, err := sayInSpec(c.Context(), cl, a[0], "encryption", func(s *federation.VolumeSpec) bool {
					was := s.Encryption
					if says {
						s.Encryption.Reseal = map[bool]encryption.Reseal{true: encryption.ResealRotation}[reseal]
					}
					if c.Flags().Changed("every") {
						s.Encryption.RotateEvery = quantity.Duration(every)
					}
					if !schedule {
						// The second try may find what the first one wrote.
						target = cmp.Or(target, was.Rotation+1)
						s.Encryption.Rotation = max(was.Rotation, target)
					}
					problems = s.Encryption.ProblemsWith(spec.KeepsAll(s.Replication))
					return was != s.Encryption && len(problems) == 0
				})
				switch {
				case err != nil:
					return err
				case len(problems) > 0:
					return cli.Usage("encryption.%s: %s: %s", problems[0][0], problems[0][1], problems[0][2])
				case schedule && !changed:
					return sh.Say("volume %s has this schedule already\n", name)
				case schedule:
					return sh.Say("volume %s: its home goes by this from now on\n", name)
				}
				return sh.Say("volume %s: its home makes another data key; `weir volume keys %[1]s` shows when it has\n", name)
			})
		},
	}
	c.Flags().BoolVar(&reseal, "reseal", false, "seal what older keys sealed anew, in the background")
	c.Flags().DurationVar(&every, "every", 0, "replace the key when it is `SO` old")
	return c
}
