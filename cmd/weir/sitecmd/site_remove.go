// SPDX-License-Identifier: Apache-2.0

package sitecmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
)

func removeCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	return oneSiteCommand(sh, opener, &cobra.Command{
		Use: "remove SITE", Short: "Forget a site that is gone for ever, which frees its name",
		Long: "Forgets a site, its gateways, and the claims and admissions of its clients. The command refuses\n" +
			"while a volume has a copy there or belongs to the site's cluster.",
		Example: "  weir site remove waw",
	}, func(ctx context.Context, cl *access.Client, name string) (string, error) {
		if _, err := deadSite(ctx, cl, name, "it is not gone"); err != nil {
			return "", err
		}
		if err := unused(ctx, cl, name); err != nil {
			return "", err
		}
		if err := forget(ctx, cl, name); err != nil {
			return "", err
		}
		return fmt.Sprintf("site %s is forgotten; its name is free", name), nil
	})
}

// unused returns an error if a volume has a copy at the site or belongs to it.
func unused(ctx context.Context, cl *access.Client, site string) error {
	all, err := cl.Registry.ListVolumes(ctx)
	if err != nil {
		return err
	}
	var here, owned []string
	for _, v := range all {
		if v.Volume.Deleted {
			continue
		}
		there := slices.Contains(v.Volume.Sites, site)
		ctl, _, err := cl.Registry.GetControl(ctx, v.Volume.UUID)
		if err != nil && !errors.Is(err, federation.ErrNotFound) {
			return err
		}
		there = there || slices.ContainsFunc(ctl.Members, func(m federation.Member) bool { return m.Site == site })
		if there {
			here = append(here, v.Volume.Name)
		}
		if v.Volume.OwnerSite == site {
			owned = append(owned, v.Volume.Name)
		}
	}
	switch {
	case len(here) > 0:
		return fmt.Errorf("site %s: volumes have copies there: %s: give them other sites, or delete them, first", site, some(here))
	case len(owned) > 0:
		return fmt.Errorf("site %s: its cluster owns volumes: %s: move them with `weir volume transfer` first", site, some(owned))
	}
	return nil
}

// some lists the first of many names.
func some(names []string) string {
	const few = 5
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d others", strings.Join(names[:few], ", "), len(names)-few)
}

// forget removes everything that the registry has about a site. The site itself goes last: after an
// error the person can type the command again.
func forget(ctx context.Context, cl *access.Client, site string) error {
	claims, err := cl.Registry.ListClaims(ctx, "")
	if err != nil {
		return err
	}
	for _, l := range claims {
		if l.Site == site {
			if err := cl.Registry.DeleteClaim(ctx, l.Volume, site, l.Namespace, l.Name); err != nil {
				return err
			}
		}
	}
	attachments, err := cl.Registry.ListAttachments(ctx, site)
	if err != nil {
		return err
	}
	for _, a := range attachments {
		if err := cl.Registry.DeleteAttachment(ctx, site, a.Volume, a.Node); err != nil {
			return err
		}
	}
	admissions, err := cl.Registry.ListAdmissions(ctx, site)
	if err != nil {
		return err
	}
	for _, a := range admissions {
		if err := cl.Registry.DeleteAdmission(ctx, a.Volume, site, a.Client); err != nil {
			return err
		}
	}
	if err := cl.Registry.DeleteLost(ctx, site); err != nil {
		return err
	}
	return cl.Registry.RemoveSite(ctx, site)
}
