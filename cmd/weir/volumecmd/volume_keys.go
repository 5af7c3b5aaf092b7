// SPDX-License-Identifier: Apache-2.0

package volumecmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/keyfile"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
)

// Keys is what `weir volume keys -o json` prints.
type Keys struct {
	Volume string `json:"volume"`
	UUID   string `json:"uuid"`
	Owner  string `json:"owner"`
	// Generation of the keyring: it grows when a key is wrapped for a site.
	Generation uint64 `json:"generation"`
	// DataKeys is how many data keys it has had: what is written is sealed with the last.
	DataKeys int       `json:"dataKeys"`
	Keys     []DataKey `json:"keys"`  // in order
	Sites    []KeySite `json:"sites"` // by name
}

// DataKey is one of a volume's data keys.
type DataKey struct {
	Number int `json:"number"`
	// Since when new segments are sealed with it, but for a moment. Zero: that is not known.
	Since time.Time `json:"since,omitzero"`
	// Rotation is the owner's word that it followed for; 0: it followed for something else.
	Rotation int64    `json:"rotation,omitempty"`
	Erasable bool     `json:"erasable,omitempty"` // a purge of the volume destroys it
	Sites    []string `json:"sites"`              // that can open what it seals, by name
}

// KeySite is a site that has the volume's key, or waits for it.
type KeySite struct {
	Site         string `json:"site"`
	Organization string `json:"organization,omitempty"` // empty: no such site is registered any more
	// HasKey: the volume's newest data key is wrapped for it, so it can read what is written now.
	HasKey bool `json:"hasKey"`
	// Until is when a data key replaced the last one that is wrapped for it: it can read what was
	// written before. Zero with HasKey, and when it has none.
	Until time.Time `json:"until,omitzero"`
	// Why it has the key now: copy, home, member, granted to read, granted to write, admitted
	// clients. Empty: it had a reason once. A blind copy has none: it holds ciphertext only.
	Why []string `json:"why"`
}

func keysCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var output string
	var out keyfile.Export
	c := &cobra.Command{
		Use: "keys NAME", Short: "Show who can read a volume", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Shows the sites that a volume's key is wrapped for, and why. Such a site can read all of the volume\n" +
			"whose sealed data it can get. A key is not taken back: of a site that has no reason any more, it\n" +
			"says until when what was written can be read there. What is written later has another key.\n" +
			"A blind copy holds ciphertext only. Below are the keys by number, since when they seal what is\n" +
			"written, and which sites can open that.\n\n" +
			"With --export, the keys are written to a file in the clear instead, for a program that reads the\n" +
			"files of a store without Weir (docs/format.md). That takes the private key of a site that has\n" +
			"them.",
		Example: "  weir volume keys data\n  weir volume keys rotate data\n" +
			"  weir volume keys data --export data.keys --config /etc/weir/gateway.yaml",
		RunE: func(c *cobra.Command, a []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			if out.To != "" {
				return out.Write(c.Context(), sh, opener, cl, a[0])
			}
			k, err := keysOf(c.Context(), cl, a[0])
			if err != nil {
				return err
			}
			if output == "json" {
				return cli.WriteJSON(sh.Out, k)
			}
			var t cli.Table
			t.Row("SITE", "ORGANIZATION", "KEY", "WHY")
			for _, s := range k.Sites {
				has := "no"
				if s.HasKey {
					has = "yes"
				} else if !s.Until.IsZero() {
					has = "until " + cli.Stamp(s.Until)
				}
				why := strings.Join(s.Why, ", ")
				if why == "" {
					why = "no reason any more"
				}
				t.Row(s.Site, s.Organization, has, why)
			}
			if err := t.Write(sh.Out); err != nil {
				return err
			}
			t = cli.Table{}
			t.Row("KEY", "SINCE", "PURGE", "CAN BE OPENED AT")
			for _, d := range k.Keys {
				since := ""
				if !d.Since.IsZero() {
					since = cli.Stamp(d.Since)
				}
				purge := "keeps it"
				if d.Erasable {
					purge = "destroys it"
				}
				t.Row(strconv.Itoa(d.Number), since, purge, strings.Join(d.Sites, ", "))
			}
			if err := sh.Say("\n"); err != nil {
				return err
			}
			return t.Write(sh.Out)
		},
	}
	c.AddCommand(rotateCommand(sh, opener))
	cli.OutputFlag(c, &output)
	f := c.Flags()
	f.StringVar(&out.To, "export", "", "write the data keys in the clear to this new `FILE`")
	f.StringVar(&out.SiteKey, "site-key", "", "with --export: `FILE` with a site's private key, by default siteKey of --config")
	f.StringVar(&out.Site, "site", "", "with --export: `NAME` of that site, by default site of --config")
	return c
}

// keysOf finds the sites that have a volume's key, and those that have a reason to.
func keysOf(ctx context.Context, cl *access.Client, name string) (Keys, error) {
	v, _, err := cl.Find(ctx, name)
	if err != nil {
		return Keys{}, err
	}
	ring, _, err := cl.Registry.GetKeyring(ctx, v.UUID)
	if errors.Is(err, federation.ErrNotFound) {
		return Keys{}, fmt.Errorf("volume %s: it has no keyring: nobody can read it, restore it with the registry's backup", name)
	}
	if err != nil {
		return Keys{}, err
	}
	all, err := cl.Registry.Sites(ctx)
	if err != nil {
		return Keys{}, err
	}
	why, err := reasons(ctx, cl, v, all)
	if err != nil {
		return Keys{}, err
	}
	for s := range ring.Wrapped {
		why[s] = append(why[s], "")
	}
	k := Keys{Volume: v.Name, UUID: v.UUID, Owner: v.Owner, Generation: ring.Generation, DataKeys: len(ring.Keys())}
	for number, wrapped := range ring.Keys() {
		one := DataKey{Number: number, Since: v.CreatedAt, Sites: slices.Sorted(maps.Keys(wrapped))}
		if number > 0 {
			l := ring.Later[number-1]
			one.Since, one.Erasable = l.At, len(l.Under) > 0
			if l.Rotation > keyring.Newest(federation.Keyring{Later: ring.Later[:number-1]}, v.CreatedAt).Rotation {
				one.Rotation = l.Rotation
			}
		}
		k.Keys = append(k.Keys, one)
	}
	for _, s := range slices.Sorted(maps.Keys(why)) {
		one := KeySite{Site: s, HasKey: len(ring.Newest()[s]) > 0, Until: until(ring, s), Why: slices.DeleteFunc(why[s],
			func(w string) bool { return w == "" })}
		if i := slices.IndexFunc(all, func(x federation.SiteStatus) bool { return x.Site.Name == s }); i >= 0 {
			one.Organization = all[i].Site.Organization
		}
		k.Sites = append(k.Sites, one)
	}
	return k, nil
}

// until is when a data key replaced the last one that a site has; zero: it has the newest, or none.
func until(ring federation.Keyring, site string) (end time.Time) {
	for i, wrapped := range ring.Keys() {
		if len(wrapped[site]) == 0 {
			continue
		}
		end = time.Time{}
		if i < len(ring.Later) {
			end = ring.Later[i].At
		}
	}
	return end
}

// reasons are why sites are to have a volume's key, by site.
func reasons(ctx context.Context, cl *access.Client, v federation.Volume, all []federation.SiteStatus) (map[string][]string, error) {
	why := map[string][]string{}
	add := func(site, reason string) {
		if !slices.Contains(why[site], reason) {
			why[site] = append(why[site], reason)
		}
	}
	for _, s := range v.Sites {
		if v.IsBlind(s) {
			add(s, "blind copy")
		} else {
			add(s, "copy")
		}
	}
	ctl, _, err := cl.Registry.GetControl(ctx, v.UUID)
	if err != nil && !errors.Is(err, federation.ErrNotFound) {
		return nil, err
	}
	for _, m := range ctl.Members {
		if m == ctl.Home {
			add(m.Site, "home")
		} else {
			add(m.Site, "member")
		}
	}
	for _, g := range v.Grants {
		if g.Access == federation.ReadWrite {
			add(g.Site, "granted to write")
		} else {
			add(g.Site, "granted to read")
		}
	}
	admitted, err := cl.Registry.ListAdmissions(ctx, "")
	for _, a := range admitted {
		s, unknown := access.SiteNamed(all, a.Site)
		own := unknown == nil && s.Site.Organization == v.Owner
		granted := slices.ContainsFunc(v.Grants, func(g federation.Grant) bool { return g.Site == a.Site })
		// If its site alone wrote it, or the copy there is blind, the owner allows nothing.
		if a.Volume == v.UUID && !v.IsBlind(a.Site) && (a.Node == "" || own || granted) {
			add(a.Site, "admitted clients")
		}
	}
	return why, err
}
