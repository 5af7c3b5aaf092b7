// SPDX-License-Identifier: Apache-2.0

package federationcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/pki"
)

// endorseTries bounds how often a record is read again that changes while it is signed.
const endorseTries = 5

func requireCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	g := &change{sh: sh, opener: opener}
	var again bool
	c := &cobra.Command{
		Use: "require-signatures", Short: "Let records of the registry count only with a signature", Args: cli.Args(cobra.NoArgs),
		Long: "Every program of this release signs what it writes to the registry, and checks who signed what\n" +
			"it reads. From now on a record without a signature does not count, so that who runs a member of\n" +
			"the registry cannot write records behind its gatekeeper. Records that earlier releases wrote are\n" +
			"signed as they are, with your certificate of part administrator. Upgrade all sites first: what an\n" +
			"earlier release writes is refused from then on. A federation that began with this release needs no\n" +
			"such step.",
		Example: "  weir federation require-signatures --dir authority",
	}
	c.Flags().BoolVar(&again, "again", false, "sign also what was written since records count only with a signature")
	return g.command(c, func(ctx context.Context, next *pki.Charter, _ []string) (string, error) {
		keys, err := g.cl.Registry.Unsigned(ctx)
		if err != nil || len(keys) == 0 && !next.SignedSince.IsZero() {
			return "", err
		}
		if len(keys) > 0 && !next.SignedSince.IsZero() && !again {
			return "", fmt.Errorf("records count only with a signature already, and these have none that counts: %s: somebody may have "+
				"written them past the gatekeepers; look at each, and sign them with --again if they are right", strings.Join(keys, ", "))
		}
		for _, k := range keys {
			if err := g.endorse(ctx, k); err != nil {
				return "", err
			}
		}
		next.SignedSince = sh.Now().UTC().Truncate(time.Second)
		return fmt.Sprintf("records count only with a signature; %d had none of who may write them, and have yours", len(keys)), nil
	}, "records count only with a signature already, and all have one: nothing to do")
}

func (g *change) endorse(ctx context.Context, key string) error {
	for try := 1; ; try++ {
		err := g.cl.Registry.Endorse(ctx, key)
		if err == nil || try == endorseTries || !errors.Is(err, federation.ErrConflict) {
			return err
		}
	}
}
