// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/federation"
)

func (sh *shell) volumeCommand() *cobra.Command {
	c := &cobra.Command{Use: "volume", Short: "Make, list and delete volumes, and say who may use and own them"}
	group(c)
	n := new(connection)
	n.flags(c)
	c.AddCommand(sh.volumeCreate(n), sh.volumeList(n), sh.volumeDelete(n), sh.volumeAdmit(n), sh.volumeExpel(n), sh.volumeTransfer(n))
	return c
}

// find finds a volume that is not deleted, by name.
func (c *client) find(ctx context.Context, name string) (federation.Volume, federation.Revision, error) {
	v, rev, err := c.registry.FindVolume(ctx, name)
	switch {
	case isNotFound(err):
		return v, rev, fmt.Errorf("volume %s: there is no volume of this name: `weir volume list` shows which there are", name)
	case err != nil:
		return v, rev, err
	}
	return v, rev, nil
}

// living is find, and refuses a volume that is marked deleted.
func (c *client) living(ctx context.Context, name string) (federation.Volume, error) {
	v, _, err := c.find(ctx, name)
	if err == nil && v.Deleted {
		err = fmt.Errorf("volume %s: it was deleted at %s", name, stamp(v.DeletedAt))
	}
	return v, err
}

// site finds a site by name.
func siteNamed(all []federation.SiteStatus, name string) (federation.SiteStatus, error) {
	var names []string
	for _, s := range all {
		if s.Site.Name == name {
			return s, nil
		}
		names = append(names, s.Site.Name)
	}
	slices.Sort(names)
	return federation.SiteStatus{}, fmt.Errorf("site %q: there is no site of this name: the federation has %s", name, cmp.Or(strings.Join(names, ", "), "none"))
}
