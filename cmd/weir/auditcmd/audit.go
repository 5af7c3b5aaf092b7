// SPDX-License-Identifier: Apache-2.0

// Package auditcmd is `weir audit`: who can do what with an organization's volumes, by what the
// registry says, and what of it somebody should look at.
package auditcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/pki"
)

// Report is what `weir audit -o json` prints.
type Report struct {
	Federation   string `json:"federation"`
	Organization string `json:"organization"`
	// Volumes is how many the organization has.
	Volumes int `json:"volumes"`
	// Sites that can do something with one, by name.
	Sites    []Site    `json:"sites"`
	Findings []Finding `json:"findings"`
}

// Site is what a site can do with an organization's volumes: in each field, how many.
type Site struct {
	Site         string `json:"site"`
	Organization string `json:"organization,omitempty"` // empty: it is not registered any more
	Keys         int    `json:"keys"`                   // it can read all of the volume
	Copies       int    `json:"copies"`                 // it is to have a copy, with the key
	Blind        int    `json:"blind"`                  // it is to have a copy of ciphertext only
	Homes        int    `json:"homes"`                  // it decides what the volume has
	Writes       int    `json:"writes"`                 // its clients may write
	Reads        int    `json:"reads"`                  // its clients may read, and not write
	Clients      int    `json:"clients"`                // addresses that are admitted
}

// Finding is something that somebody should look at.
type Finding struct {
	// About is a volume, a site or an organization, by name, with what it is before it.
	About string `json:"about"`
	What  string `json:"what"`
	Do    string `json:"do"`
}

// Command is `weir audit`.
func Command(sh *cli.Shell, connect access.Connector) *cobra.Command {
	var output, organization string
	var check bool
	opener := access.NewOpener(sh.Getenv, connect)
	c := &cobra.Command{
		Use: "audit", Short: "Show who can do what with your organization's volumes", Args: cli.Args(cobra.NoArgs),
		Long: "Shows which sites can read, write and decide about an organization's volumes, by what the registry\n" +
			"says now, and what of it somebody should look at: keys without a reason, root of other\n" +
			"organizations, clients that are known by their address, who vouches for whom. What happened is in\n" +
			"the logs of gatekeepers and gateways, with audit=refused and audit=asked.",
		Example: "  weir audit\n  weir audit --organization UvA -o json\n  weir audit --check",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			if organization == "" {
				organization = cl.Self.Organization
			}
			r, err := audit(c.Context(), sh, cl, opener.CA, organization)
			if err != nil {
				return err
			}
			if output == "json" {
				err = cli.WriteJSON(sh.Out, r)
			} else {
				err = r.write(sh)
			}
			if err == nil && check && len(r.Findings) > 0 {
				err = fmt.Errorf("audit: there are %d findings", len(r.Findings))
			}
			return err
		},
	}
	opener.Flags(c)
	cli.OutputFlag(c, &output)
	c.Flags().StringVar(&organization, "organization", "", "`NAME` of the organization whose volumes are meant, by default yours")
	c.Flags().BoolVar(&check, "check", false, "end with an error when there is something to look at")
	return c
}

// audit reads everything and looks at it.
func audit(ctx context.Context, sh *cli.Shell, cl *access.Client, ca, organization string) (Report, error) {
	roots, err := os.ReadFile(ca)
	if err != nil {
		return Report{}, fmt.Errorf("--ca: %w", err)
	}
	e, err := gather(ctx, cl.Registry)
	if err != nil {
		return Report{}, err
	}
	l := look{everything: e, organization: organization, now: sh.Now(), said: cl.Said}
	if l.founders, err = pki.Founders(roots); err != nil {
		return Report{}, fmt.Errorf("--ca: %w", err)
	}
	if e.charter != nil {
		is, err := pki.ReadCharter(roots, cl.Self.Federation, e.charter.Signed)
		if err != nil {
			return Report{}, fmt.Errorf("the registry's charter: %w", err)
		}
		l.charter = &is
	}
	if !l.knows(organization) && organization != cl.Self.Organization {
		return Report{}, cli.Usage("--organization %q: the federation has none of this name, by its sites, volumes and charter",
			organization)
	}
	return l.report(cl.Self.Federation), nil
}

// everything is what the registry has that says who can do what.
type everything struct {
	volumes    map[string]federation.Volume
	controls   map[string]federation.Control
	keyrings   map[string]federation.Keyring
	sites      map[string]federation.Site
	admissions map[string][]federation.Admission // by volume
	charter    *federation.Charter
	unread     []string // records that cannot be read
}

// errSynced ends a watch that has listed everything.
var errSynced = errors.New("everything is listed")

// gather reads it. Of a registry that goes away meanwhile it may be of two moments.
func gather(ctx context.Context, w federation.Watcher) (everything, error) {
	e := everything{volumes: map[string]federation.Volume{}, controls: map[string]federation.Control{},
		keyrings: map[string]federation.Keyring{},
		sites:    map[string]federation.Site{}, admissions: map[string][]federation.Admission{}}
	err := w.Watch(ctx, func(v federation.Event) error {
		switch {
		case v.Kind == federation.KindSynced:
			return errSynced
		case v.Err != nil || v.Deleted: // of the second list, if the first was not finished
			e.forget(v)
		case v.Volume != nil:
			e.volumes[v.Volume.UUID] = *v.Volume
		case v.Control != nil:
			e.controls[v.Control.Volume] = *v.Control
		case v.Keyring != nil:
			e.keyrings[v.Keyring.Volume] = *v.Keyring
		case v.Site != nil:
			e.sites[v.Site.Name] = *v.Site
		case v.Admission != nil:
			e.forget(v) // it may be there, if this is the second list
			e.admissions[v.Admission.Volume] = append(e.admissions[v.Admission.Volume], *v.Admission)
		case v.Charter != nil:
			e.charter = v.Charter
		}
		return nil
	})
	if errors.Is(err, errSynced) {
		err = nil
	}
	return e, err
}

// forget takes a record out that is gone, or that cannot be read.
func (e *everything) forget(v federation.Event) {
	switch v.Kind {
	case federation.KindVolume:
		delete(e.volumes, v.Name)
	case federation.KindControl:
		delete(e.controls, v.Name)
	case federation.KindKeyring:
		delete(e.keyrings, v.Name)
	case federation.KindSite:
		delete(e.sites, v.Name)
	case federation.KindAdmission:
		for id, all := range e.admissions {
			e.admissions[id] = slices.DeleteFunc(all,
				func(a federation.Admission) bool { return a.Site+"/"+a.Volume+"/"+a.Client == v.Name })
		}
	case federation.KindCharter:
		e.charter = nil
	default:
		return // it says nothing of who can do what
	}
	if v.Err != nil {
		e.unread = append(e.unread, fmt.Sprintf("%s %s", v.Kind, v.Name))
	}
}

func (r Report) write(sh *cli.Shell) error {
	if err := sh.Say("Organization %s has %d volumes in federation %s. Of so many, these sites\n\n", r.Organization, r.Volumes,
		r.Federation); err != nil {
		return err
	}
	var t cli.Table
	t.Row("SITE", "ORGANIZATION", "HAVE KEYS", "HAVE COPIES", "BLIND", "ARE HOME", "WRITE", "READ ONLY", "CLIENTS")
	for _, s := range r.Sites {
		of := s.Organization
		if of == "" {
			of = "(not registered)"
		}
		t.Row(s.Site, of, number(s.Keys), number(s.Copies), number(s.Blind), number(s.Homes), number(s.Writes), number(s.Reads),
			number(s.Clients))
	}
	if err := t.Write(sh.Out); err != nil {
		return err
	}
	if len(r.Findings) == 0 {
		return sh.Say("\nNothing of it stands out.\n")
	}
	if err := sh.Say("\nLook at\n\n"); err != nil {
		return err
	}
	for _, f := range r.Findings {
		if err := sh.Say("- %s: %s.\n  %s\n", f.About, f.What, f.Do); err != nil {
			return err
		}
	}
	return nil
}

func number(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}
