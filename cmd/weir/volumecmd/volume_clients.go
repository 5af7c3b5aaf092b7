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

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/users"
)

// identities is what `weir volume clients` asks for.
type identities struct {
	site           string
	squash, mask   string
	certificates   string
	uid, gid       int
	uids, gids     []string
	low, forgotten bool
}

func clientsCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var o identities
	c := &cobra.Command{
		Use: "clients NAME [--site SITE]", Short: "Say who the users of clients are to a volume", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Says who the users of clients are to a volume: at one site, or without --site at all of which\n" +
			"nothing is said. What was said before is replaced as a whole; without any of the other flags\n" +
			"everybody is who he says he is. It counts at once, for files that are open too. Volumes of a\n" +
			"cluster have this in their GeoVolume, in clients and grants; of sites without a grant this command\n" +
			"says it. Upgrade all sites first: gateways of earlier releases do not know of it.",
		Example: "  weir volume clients data --squash Root\n" +
			"  weir volume clients data --site utr --uids 1000:20000:100 --gids 1000:20000 --mask 007\n" +
			"  weir volume clients data --site utr --forget",
		RunE: func(c *cobra.Command, a []string) error {
			for _, name := range []string{"anonymous-uid", "anonymous-gid"} {
				if f := c.Flags().Lookup(name); f.Changed && f.Value.String() == "0" {
					return cli.Usage("--%s 0: nobody does not become root: give another, or leave it out for 65534", name)
				}
			}
			said, err := o.policy()
			if err != nil {
				return err
			}
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			text, err := sayClients(c.Context(), cl, a[0], o, said)
			if err != nil {
				return err
			}
			return sh.Say("%s", text)
		},
	}
	f := c.Flags()
	f.StringVar(&o.site, "site", "", "`NAME` of the clients' site")
	f.StringVar(&o.squash, "squash", "", "`WHO` is nobody: None, Root or All")
	f.IntVar(&o.uid, "anonymous-uid", 0, "`USER` of the volume that nobody is, by default 65534")
	f.IntVar(&o.gid, "anonymous-gid", 0, "`GROUP` of the volume that nobody is, by default 65534")
	f.StringSliceVar(&o.uids, "uids", nil, "users of clients: `CLIENT:VOLUME[:COUNT]`; others are nobody")
	f.StringSliceVar(&o.gids, "gids", nil, "groups of clients: `CLIENT:VOLUME[:COUNT]`; others are nobody")
	f.StringVar(&o.mask, "mask", "", "`PERMISSIONS` of groups and others, in octal, that do not count for clients")
	f.BoolVar(&o.low, "privileged-ports", false, "take requests from ports below 1024 only")
	f.StringVar(&o.certificates, "certificates", "", "`WHAT` connections of clients show: None or Required")
	f.BoolVar(&o.forgotten, "forget", false, "with --site: nothing is said of that site any more")
	return c
}

// policy reads the flags.
func (o identities) policy() (p users.Policy, err error) {
	p = users.Policy{Squash: users.Squash(o.squash), AnonymousUID: o.uid, AnonymousGID: o.gid, Mask: o.mask,
		Certificates: users.Certificates(o.certificates)}
	if o.low {
		p.Ports = users.PortsPrivileged
	}
	if p.UIDs, err = ranges("--uids", o.uids); err != nil {
		return p, err
	}
	if p.GIDs, err = ranges("--gids", o.gids); err != nil {
		return p, err
	}
	if o.forgotten && (o.site == "" || !p.IsZero()) {
		return p, cli.Usage("--forget goes with --site, and with nothing else: leave the other flags out")
	}
	var wrong []error
	for _, x := range p.Problems() {
		wrong = append(wrong, fmt.Errorf("%s: %s: %s", x[0], x[1], x[2]))
	}
	if len(wrong) > 0 {
		return p, &cli.UsageError{Err: errors.Join(wrong...)}
	}
	return p, nil
}

// ranges reads what follows a flag.
func ranges(flag string, list []string) (out []users.Range, err error) {
	for _, text := range list {
		var n []int
		for part := range strings.SplitSeq(text, ":") {
			v, err := strconv.Atoi(part)
			if err != nil {
				n = nil
				break
			}
			n = append(n, v)
		}
		switch len(n) {
		case 2:
			out = append(out, users.Range{Client: n[0], Volume: n[1]})
		case 3:
			out = append(out, users.Range{Client: n[0], Volume: n[1], Count: n[2]})
		default:
			return nil, cli.Usage("%s %q: write CLIENT:VOLUME or CLIENT:VOLUME:COUNT, in numbers, such as 1000:20000:100", flag, text)
		}
	}
	return out, nil
}

// sayClients writes it into the volume's record.
func sayClients(ctx context.Context, cl *access.Client, name string, o identities, said users.Policy) (string, error) {
	if o.site != "" {
		all, err := cl.Registry.Sites(ctx)
		if err != nil {
			return "", err
		}
		if _, err := access.SiteNamed(all, o.site); err != nil && !o.forgotten { // it may be gone
			return "", err
		}
	}
	uuid := ""
	for try := 1; ; try++ {
		v, rev, err := cl.Find(ctx, name)
		if err == nil && uuid == "" {
			uuid = v.UUID
		}
		switch {
		case err != nil:
			return "", err
		case v.UUID != uuid:
			return "", fmt.Errorf("the name %s now means another volume, %s: look at it, and type the command again", name, v.UUID)
		case v.Deleted:
			return "", fmt.Errorf("volume %s is deleted: take it out of the trash first, with weir volume undelete", v.Name)
		case v.OwnerSite != "" && o.site == "":
			return "", fmt.Errorf("volume %s belongs to the cluster of site %s: write clients into its GeoVolume there", v.Name,
				v.OwnerSite)
		case v.OwnerSite != "" && slices.ContainsFunc(v.Grants, func(g federation.Grant) bool { return g.Site == o.site }):
			return "", fmt.Errorf("volume %s belongs to the cluster of site %s, which grants it to site %s: write clients into that grant",
				v.Name, v.OwnerSite, o.site)
		case v.OwnerSite != "" && said.Ports == users.PortsPrivileged:
			return "", fmt.Errorf("volume %s belongs to the cluster of site %s, whose nodes have no privileged ports for it", v.Name,
				v.OwnerSite)
		}
		where := "at all sites of which nothing else is said"
		switch {
		case o.site == "":
			v.Spec.Clients = said
			v.Generation++
		case o.forgotten:
			where = "at site " + o.site
			v.Clients = maps.Clone(v.Clients)
			delete(v.Clients, o.site)
			said = v.Spec.Clients
		default:
			where = "at site " + o.site
			v.Clients = maps.Clone(v.Clients)
			if v.Clients == nil {
				v.Clients = map[string]users.Policy{}
			}
			v.Clients[o.site] = said
		}
		_, err = cl.Registry.UpdateVolume(ctx, rev, v)
		if try < updateTries && (errors.Is(err, federation.ErrConflict) || errors.Is(err, federation.ErrUnknown)) {
			continue
		}
		if err != nil {
			return "", access.Repeatable(err)
		}
		text := fmt.Sprintf("users of clients of volume %s, %s: %s\n", v.Name, where, describe(said))
		if v.OwnerSite != "" && !o.forgotten {
			text += fmt.Sprintf("When the cluster of site %s grants it to site %s, that grant says it instead.\n", v.OwnerSite, o.site)
		}
		return text, nil
	}
}

// describe is what people read.
func describe(p users.Policy) string {
	var parts []string
	add := func(format string, a ...any) { parts = append(parts, fmt.Sprintf(format, a...)) }
	switch {
	case p.Squash == users.SquashAll:
		add("everybody is nobody")
	case len(p.UIDs)+len(p.GIDs) > 0:
		add("%d ranges of users and %d of groups, and others are nobody", len(p.UIDs), len(p.GIDs))
	case p.Squash == users.SquashRoot:
		add("root is nobody")
	default:
		add("everybody is who he says he is")
	}
	if parts[0] != "everybody is who he says he is" {
		uid, gid := p.Nobody()
		add("nobody is %d:%d", uid, gid)
	}
	if p.Mask != "" {
		add("without permissions %s", p.Mask)
	}
	if p.Ports == users.PortsPrivileged {
		add("from ports below 1024 only")
	}
	if p.Certificates == users.CertificatesRequired {
		add("on connections with a certificate of the site only")
	}
	return strings.Join(parts, "; ")
}
