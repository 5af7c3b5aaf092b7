// SPDX-License-Identifier: Apache-2.0

package admitcmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
)

// ExpelCommand is `weir volume expel`.
func ExpelCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	c := admissionCommand(sh, opener, new(admission), expel)
	c.Use, c.Short = "expel NAME --site SITE --client ADDRESS", "End a client's right to use a volume"
	c.Long = "Ends a client's right to use a volume, at the gateways of its site. The client's opens and\n" +
		"locks of the volume end too."
	c.Example = "  weir volume expel data --site ams --client 10.0.1.20"
	return c
}

// expel removes the admission. It also works after the volume was deleted.
func expel(ctx context.Context, cl *access.Client, name string, o admission, ip string) (string, error) {
	if err := o.checkSite(); err != nil {
		return "", err
	}
	v, _, err := cl.Find(ctx, name)
	if err != nil {
		return "", err
	}
	all, err := cl.Registry.ListAdmissions(ctx, o.site)
	if err != nil {
		return "", err
	}
	there := false
	for _, a := range all {
		there = there || a.Volume == v.UUID && a.Client == ip
	}
	if !there {
		return fmt.Sprintf("client %s was not admitted to volume %s at site %s: nothing to do\n", ip, v.Name, o.site), nil
	}
	if err := cl.Registry.DeleteAdmission(ctx, v.UUID, o.site, ip); err != nil {
		return "", access.Repeatable(err)
	}
	return fmt.Sprintf("client %s may not use volume %s at site %s any more\n", ip, v.Name, o.site), nil
}
