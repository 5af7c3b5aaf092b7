// SPDX-License-Identifier: Apache-2.0

package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
)

// Find finds a volume by name. It also finds one that is marked deleted.
func (c *Client) Find(ctx context.Context, name string) (federation.Volume, federation.Revision, error) {
	v, rev, err := c.Registry.FindVolume(ctx, name)
	switch {
	case errors.Is(err, federation.ErrNotFound):
		return v, rev, fmt.Errorf("volume %s: there is no volume of this name: `weir volume list` shows which there are, and your "+
			"organization is shown", name)
	case err != nil:
		return v, rev, err
	}
	return v, rev, nil
}

// Living finds a volume by name, and refuses one that is marked deleted.
func (c *Client) Living(ctx context.Context, name string) (federation.Volume, error) {
	v, _, err := c.Find(ctx, name)
	if err == nil && v.Deleted {
		err = fmt.Errorf("volume %s: it was deleted at %s", name, cli.Stamp(v.DeletedAt))
	}
	return v, err
}

// SiteNamed finds a site by name. The error of an unknown name lists the known ones.
func SiteNamed(all []federation.SiteStatus, name string) (federation.SiteStatus, error) {
	var names []string
	for _, s := range all {
		if s.Site.Name == name {
			return s, nil
		}
		names = append(names, s.Site.Name)
	}
	slices.Sort(names)
	return federation.SiteStatus{}, fmt.Errorf("site %q: there is no site of this name: the federation has %s",
		name, cmp.Or(strings.Join(names, ", "), "none"))
}

// MissingHome says why a volume has no home yet. Only the first of its sites can begin it.
func MissingHome(v federation.Volume, sites []federation.SiteStatus) string {
	if len(v.Sites) == 0 {
		return "it has no sites: delete it, and create another"
	}
	first := v.Sites[0]
	i := slices.IndexFunc(sites, func(s federation.SiteStatus) bool { return s.Site.Name == first })
	if i < 0 {
		return fmt.Sprintf("its first site %s is not registered any more: start a gateway there", first)
	}
	var names []string
	for _, g := range sites[i].Site.Gateways {
		if sites[i].Alive[g.Name] {
			return fmt.Sprintf("gateway %s at its first site %s is alive and has not opened it: "+
				"`weir status %s` and that gateway's log say why", g.Name, first, v.Name)
		}
		names = append(names, g.Name)
	}
	if len(names) == 0 {
		return fmt.Sprintf("its first site %s has no gateway: start one there", first)
	}
	return fmt.Sprintf("no gateway of its first site %s is alive (%s): start it", first, strings.Join(names, ", "))
}

// Repeatable adds to an unknown outcome that the person may type the same command again.
func Repeatable(err error) error {
	if errors.Is(err, federation.ErrUnknown) {
		return fmt.Errorf("%w; the same command may be repeated", err)
	}
	return err
}
