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
	var gateway string
	c := oneSiteCommand(sh, opener, &cobra.Command{
		Use: "remove SITE", Short: "Forget a site or a gateway that is gone for ever, which frees its name",
		Long: "Forgets a site, its gateways, and the claims and admissions of its clients. The command refuses\n" +
			"while a volume has a copy there or belongs to the site's cluster. With --gateway it forgets only\n" +
			"that gateway, such as one that has another name now: until then nodes are not detached, because\n" +
			"a gateway that is only cut off might still serve them. Stop it first.",
		Example: "  weir site remove waw\n  weir site remove waw --gateway waw-old",
	}, func(ctx context.Context, cl *access.Client, name string) (string, error) {
		if gateway != "" {
			return removeGateway(ctx, cl, name, gateway)
		}
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
	c.Flags().StringVar(&gateway, "gateway", "", "forget only this `GATEWAY` of the site")
	return c
}

// removeGateway forgets a gateway that has no heartbeat and is no volume's member.
func removeGateway(ctx context.Context, cl *access.Client, site, gateway string) (string, error) {
	all, err := cl.Registry.Sites(ctx)
	if err != nil {
		return "", err
	}
	s, err := access.SiteNamed(all, site)
	if err != nil {
		return "", err
	}
	if !slices.ContainsFunc(s.Site.Gateways, func(g federation.Gateway) bool { return g.Name == gateway }) {
		return "", fmt.Errorf("--gateway %s: site %s has no gateway of this name: `weir site list` shows them", gateway, site)
	}
	if s.Alive[gateway] {
		return "", fmt.Errorf("--gateway %s: it is not gone: the registry hears of it: stop it first", gateway)
	}
	volumes, err := cl.Registry.ListVolumes(ctx)
	if err != nil {
		return "", err
	}
	var member []string
	for _, v := range volumes {
		ctl, _, err := cl.Registry.GetControl(ctx, v.Volume.UUID)
		if err != nil && !errors.Is(err, federation.ErrNotFound) {
			return "", err
		}
		if !v.Volume.Deleted && slices.ContainsFunc(ctl.Members, func(m federation.Member) bool { return m.Gateway == gateway }) {
			member = append(member, v.Volume.Name)
		}
	}
	if len(member) > 0 {
		return "", fmt.Errorf("--gateway %s: writes of volumes still count on it: %s: another copy must take its place first "+
			"(`weir status`, `weir failover`)", gateway, some(member))
	}
	// Its disks are gone, as far as anybody knows: nobody waits for it to delete anything.
	purges, err := cl.Registry.ListPurges(ctx)
	if err != nil {
		return "", err
	}
	for _, p := range purges {
		if err := cl.Registry.LeavePurge(ctx, p.Volume, gateway); err != nil {
			return "", err
		}
	}
	if err := cl.Registry.RemoveGateway(ctx, site, gateway); err != nil {
		return "", err
	}
	return fmt.Sprintf("gateway %s of site %s is forgotten; its name is free", gateway, site), nil
}

// unused returns an error if a volume has a copy at the site or belongs to it.
func unused(ctx context.Context, cl *access.Client, site string) error {
	all, err := cl.Registry.ListVolumes(ctx)
	if err != nil {
		return err
	}
	var here, owned, trashed []string
	for _, v := range all {
		if v.Volume.Deleted {
			if slices.Contains(v.Volume.Sites, site) {
				trashed = append(trashed, v.Volume.Name)
			}
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
	purging, err := waiting(ctx, cl, site)
	switch {
	case err != nil:
		return err
	case len(purging) > 0:
		return fmt.Errorf("site %s: deleted volumes are not gone from its pools and its store yet: %s: start its gateways until they are; "+
			"or, if the disks are gone, forget each gateway with --gateway first", site, some(purging))
	case len(trashed) > 0:
		return fmt.Errorf("site %s: deleted volumes in the trash have copies there: %s: wait until they are purged, or take them out of "+
			"the trash and move them", site, some(trashed))
	case len(here) > 0:
		return fmt.Errorf("site %s: volumes have copies there: %s: give them other sites, or delete them, first", site, some(here))
	case len(owned) > 0:
		return fmt.Errorf("site %s: its cluster owns volumes: %s: move them with `weir volume transfer` first", site, some(owned))
	}
	return nil
}

// waiting are the purged volumes of which a gateway of the site may still have something.
func waiting(ctx context.Context, cl *access.Client, site string) (names []string, err error) {
	all, err := cl.Registry.Sites(ctx)
	if err != nil {
		return nil, err
	}
	s, err := access.SiteNamed(all, site)
	if err != nil {
		return nil, err
	}
	purges, err := cl.Registry.ListPurges(ctx)
	for _, p := range purges {
		if slices.ContainsFunc(s.Site.Gateways, func(g federation.Gateway) bool { return slices.Contains(p.Pending, g.Name) }) {
			names = append(names, p.Name)
		}
	}
	return names, err
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
