// SPDX-License-Identifier: Apache-2.0

// Package federationcmd has `weir federation`: which organizations a federation has, and whose
// authorities vouch for each. The founding authority signs that list, the charter.
package federationcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/machine"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/pki"
)

const (
	authorityName = "ca"          // of the authority's files
	charterName   = "charter.jws" // of the last charter that was signed, beside them
)

// Command is `weir federation`.
func Command(sh *cli.Shell, connect access.Connector) *cobra.Command {
	o := access.NewOpener(sh.Getenv, connect)
	c := cli.Group(&cobra.Command{
		Use: "federation", Short: "Admit organizations with their own authorities, and expel them",
		Long: "Shows and changes the charter: the list of the federation's organizations, and of the authorities\n" +
			"that vouch for each. The founding authority signs it, and all processes of the federation follow it\n" +
			"within seconds. Without a charter the founding authority vouches for everybody.\n" +
			"Changes need the founding authority's files (--dir), and a certificate of part administrator.",
	}, showCommand(sh, o), admitCommand(sh, o), dropCommand(sh, o), expelCommand(sh, o), signCommand(sh, o), requireCommand(sh, o),
		concealCommand(sh, o),
		vouchCommand(sh, o))
	o.Flags(c)
	return c
}

// change is one change of the charter.
type change struct {
	sh     *cli.Shell
	opener *access.Opener
	dir    string
	serial uint64 // the lowest that the next charter may have

	cl        *access.Client
	authority *pki.Authority
	roots     []byte // what --ca has
	now       time.Time
}

// command makes c a command that changes the charter as apply says, which returns what was done;
// "": there is nothing to do, as otherwise says.
func (g *change) command(c *cobra.Command, apply func(context.Context, *pki.Charter, []string) (done string, err error),
	otherwise string) *cobra.Command {
	c.Flags().StringVar(&g.dir, "dir", ".", "`FOLDER` with the founding authority's files")
	c.Flags().Uint64Var(&g.serial, "serial", 0, "begin anew with a first charter of this serial `NUMBER`: when the registry has one that "+
		"nobody can read, and the one of before is lost")
	c.RunE = func(c *cobra.Command, args []string) error {
		var err error
		if g.authority, err = pki.ReadAuthority(g.dir, authorityName); err != nil {
			return fmt.Errorf("--dir %q: %w: give the folder that `weir pki init` wrote", g.dir, err)
		}
		if g.cl, err = g.opener.Open(); err != nil {
			return err
		}
		defer g.cl.Close()
		if g.roots, err = os.ReadFile(g.opener.CA); err != nil {
			return fmt.Errorf("--ca: %w", err)
		}
		g.now = g.sh.Now().UTC()
		text, err := g.run(c.Context(), func(next *pki.Charter) (string, error) { return apply(c.Context(), next, args) })
		if err != nil {
			return access.Repeatable(err)
		}
		if text == "" {
			text = otherwise
		}
		return g.sh.Say("%s\n", text)
	}
	return c
}

// run signs and publishes the next charter.
func (g *change) run(ctx context.Context, apply func(*pki.Charter) (string, error)) (string, error) {
	next, rev, published, err := g.read(ctx)
	if err != nil {
		return "", err
	}
	if next.Serial == 0 {
		if err := g.begin(ctx, &next); err != nil {
			return "", err
		}
	}
	done, err := apply(&next)
	if err != nil || done == "" && published {
		return "", err
	}
	next.Serial = max(next.Serial+1, g.serial)
	next.Made = g.now
	signed, err := g.authority.SignCharter(next)
	if err != nil {
		return "", err
	}
	if _, err := pki.ReadCharter(g.roots, next.Federation, signed); err != nil {
		return "", fmt.Errorf("%w: the authority in %s is not one that --ca %q has: give the federation's founding one", err, g.dir,
			g.opener.CA)
	}
	_, failed := g.cl.Registry.PutCharter(ctx, rev, federation.Charter{Serial: next.Serial, Signed: signed})
	if failed != nil && !errors.Is(failed, federation.ErrUnknown) {
		return "", failed // it is nowhere, and what it says is not carried along by the next
	}
	err = machine.WriteFile(filepath.Join(g.dir, charterName), []byte(signed), false)
	if err != nil {
		err = fmt.Errorf("--dir %q: the charter is in force, and could not be kept: %w", g.dir, err)
	}
	if err := errors.Join(failed, err); err != nil {
		return "", err
	}
	if done == "" {
		done = "the charter is published again"
	}
	return fmt.Sprintf("%s (charter %d)", done, next.Serial), nil
}

// read returns the newest charter that is known, here or in the registry; its serial is 0 if there
// is none. published: it is the registry's. What the registry has and nobody trusts is replaced.
func (g *change) read(ctx context.Context) (newest pki.Charter, rev federation.Revision, published bool, err error) {
	fed := g.authority.Federation()
	newest.Federation = fed
	there, rev, err := g.cl.Registry.GetCharter(ctx)
	if err != nil && !errors.Is(err, federation.ErrNotFound) && !errors.Is(err, federation.ErrInvalid) {
		return newest, 0, false, err
	}
	unreadable := err // of a record that is there
	if rev != 0 && err == nil {
		var c pki.Charter
		if c, unreadable = pki.ReadCharter(g.roots, fed, there.Signed); unreadable == nil {
			newest, published = c, true
		}
	}
	if errors.Is(err, federation.ErrNotFound) {
		unreadable = nil
	}
	text, err := os.ReadFile(filepath.Join(g.dir, charterName))
	switch {
	case errors.Is(err, fs.ErrNotExist) && unreadable != nil && g.serial == 0:
		return newest, rev, false,
			fmt.Errorf("the registry has a charter that cannot be read, and folder %s has none: %w: give the --ca that "+
				"has the founding authority which signed it, or the folder that has file %s; if both are lost, begin anew with --serial "+
				"and a number that is higher than any before", g.dir, unreadable, charterName)
	case errors.Is(err, fs.ErrNotExist):
		return newest, rev, published, nil
	case err != nil:
		return newest, rev, false, fmt.Errorf("--dir %q: %w", g.dir, err)
	}
	here, err := pki.ReadCharter(g.roots, fed, string(text))
	if err != nil {
		return newest, rev, false, fmt.Errorf("--dir %q: file %s: %w: remove it if it is of another authority", g.dir, charterName, err)
	}
	if here.Serial > newest.Serial {
		newest, published = here, false
	}
	return newest, rev, published, nil
}

// begin fills a federation's first charter: the authorities that --ca has go on vouching for the
// organizations that have sites.
func (g *change) begin(ctx context.Context, c *pki.Charter) error {
	founding, err := pki.Founders(g.roots)
	if err != nil {
		return err
	}
	sites, err := g.cl.Registry.Sites(ctx)
	if err != nil {
		return err
	}
	for _, s := range sites {
		c.Set(pki.Organization{Name: s.Site.Organization, Authorities: founding})
	}
	c.Set(pki.Organization{Name: g.cl.Self.Organization, Authorities: founding})
	// A federation that begins with this release has no record without a signature.
	unsigned, err := g.cl.Registry.Unsigned(ctx)
	if err == nil && len(unsigned) == 0 {
		c.SignedSince, c.Conceals = g.now, true
	}
	return err
}

// succeed has all founding authorities of --ca vouch for the organizations for which one of them
// does.
func (g *change) succeed(c *pki.Charter) error {
	founding, err := pki.Founders(g.roots)
	if err != nil {
		return err
	}
	for i, o := range c.Organizations {
		if !slices.ContainsFunc(o.Authorities, func(a string) bool { return slices.Contains(founding, a) }) {
			continue
		}
		for _, f := range founding {
			if !slices.Contains(o.Authorities, f) {
				c.Organizations[i].Authorities = append(slices.Clone(c.Organizations[i].Authorities), f)
			}
		}
	}
	return nil
}

// authorityFile reads the file of an organization's authority.
func authorityFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	var first string
	if err == nil {
		first, err = pki.FirstCertificate(text)
	}
	if err != nil {
		return "", fmt.Errorf("--authority %q: %w: give the file ca.crt of the organization's authority", path, err)
	}
	return first, nil
}

func admitCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	g := &change{sh: sh, opener: opener}
	var file string
	c := &cobra.Command{
		Use: "admit ORGANIZATION --authority FILE", Short: "Let an authority vouch for an organization", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Adds an organization to the federation, or lets one back in that was expelled, or adds an authority\n" +
			"that takes over from another: then both vouch for the organization until the old one is dropped.\n" +
			"FILE has the certificate of the organization's authority first, without its key. Compare the\n" +
			"fingerprint with what the organization says over the telephone. The first time, all organizations\n" +
			"that have sites stay in the federation with the founding authority.",
		Example: "  weir federation admit UvA --authority uva.crt --dir authority",
	}
	c.Flags().StringVar(&file, "authority", "",
		"`FILE` with the certificate of the organization's authority: of one that was expelled, the only "+
			"one from now on; without FILE it is let in with the authorities that it had")
	return g.command(c, func(_ context.Context, next *pki.Charter, args []string) (string, error) {
		o := pki.Organization{Name: args[0]}
		if was := next.Find(args[0]); was != nil {
			o = *was
		}
		if file == "" && (o.Expelled == nil || len(o.Authorities) == 0) {
			return "", cli.Usage("no --authority: give the file ca.crt of the organization's authority")
		}
		back, until := o.Expelled != nil, g.now
		if back {
			until = o.Expelled.At
		}
		o.Expelled = nil
		said := ""
		if file != "" {
			text, err := authorityFile(file)
			if err != nil {
				return "", err
			}
			print, err := pki.Fingerprint(text)
			if err != nil {
				return "", err
			}
			at, err := find(o, print)
			if err != nil || at >= 0 && !back {
				return "", err
			}
			switch {
			case back: // those that it had may be why it was expelled
				o.Former = slices.Clone(o.Former)
				for _, a := range o.Authorities {
					o.Former = append(o.Former, pki.Former{Authority: a, Until: until})
				}
				o.Authorities = []string{text}
			case at < 0:
				o.Authorities = append(slices.Clone(o.Authorities), text)
			}
			said = ", with authority " + short(print)
		}
		next.Set(o)
		if back {
			return fmt.Sprintf("organization %s is of the federation again%s", o.Name, said), nil
		}
		return fmt.Sprintf("organization %s is of the federation%s", o.Name, said), nil
	}, "that authority vouches for the organization already: nothing to do")
}

// find returns which of an organization's authorities has a fingerprint; −1: none.
func find(o pki.Organization, print string) (int, error) {
	for i, a := range o.Authorities {
		p, err := pki.Fingerprint(a)
		if err != nil {
			return 0, err
		}
		if p == print {
			return i, nil
		}
	}
	return -1, nil
}

// short is what tables show of a fingerprint.
func short(print string) string { return print[:min(len(print), 16)] }

func dropCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	g := &change{sh: sh, opener: opener}
	var file string
	c := &cobra.Command{
		Use: "drop ORGANIZATION --authority FILE", Short: "Let an authority vouch for an organization no more",
		Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Takes an authority from an organization that has another: the last step when one takes over from\n" +
			"another, or at once when its key was stolen. Connections that show its certificates are closed.\n" +
			"What was signed with them until now still counts in the registry.",
		Example: "  weir federation drop UvA --authority uva-old.crt --dir authority",
	}
	c.Flags().StringVar(&file, "authority", "", "`FILE` with the certificate of the authority")
	return g.command(c, func(_ context.Context, next *pki.Charter, args []string) (string, error) {
		o := next.Find(args[0])
		if o == nil {
			return "", unknown(next, args[0])
		}
		text, err := authorityFile(file)
		if err != nil {
			return "", err
		}
		print, err := pki.Fingerprint(text)
		if err != nil {
			return "", err
		}
		i, err := find(*o, print)
		switch {
		case err != nil || i < 0:
			return "", err
		case len(o.Authorities) == 1 && o.Expelled == nil:
			return "", fmt.Errorf("organization %s has no other authority: admit another first, or expel it", o.Name)
		}
		until := g.now
		if o.Expelled != nil {
			until = o.Expelled.At
		}
		o.Former = append(slices.Clone(o.Former), pki.Former{Authority: o.Authorities[i], Until: until})
		o.Authorities = slices.Delete(slices.Clone(o.Authorities), i, i+1)
		return fmt.Sprintf("authority %s does not vouch for organization %s any more", short(print), o.Name), nil
	}, "that authority does not vouch for the organization: nothing to do")
}

func unknown(c *pki.Charter, name string) error {
	var all []string
	for _, o := range c.Organizations {
		all = append(all, o.Name)
	}
	return fmt.Errorf("organization %q: the charter has %s: check the spelling", name, strings.Join(all, ", "))
}

func expelCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	g := &change{sh: sh, opener: opener}
	var why string
	var unlisted bool
	c := &cobra.Command{
		Use: "expel ORGANIZATION --why TEXT", Short: "Put an organization out of the federation", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Nobody accepts the organization's certificates any more, those that the founding authority issued\n" +
			"for it among them, and its connections are closed, within seconds. Its copies do not count:\n" +
			"operators place others, and volumes whose home it was are taken over. What it has read it keeps.\n" +
			"`weir federation admit` takes it back.",
		Example: "  weir federation expel UvA --why 'its authority was stolen' --dir authority",
	}
	c.Flags().StringVar(&why, "why", "", "`TEXT` that people see")
	c.Flags().BoolVar(&unlisted, "unlisted", false, "also one that the charter does not have")
	return g.command(c, func(ctx context.Context, next *pki.Charter, args []string) (string, error) {
		o := next.Find(args[0])
		switch {
		case o == nil && !unlisted:
			return "", fmt.Errorf("%w; one that has members of the registry and administrators only is expelled with --unlisted",
				unknown(next, args[0]))
		case why == "":
			return "", cli.Usage("no --why: say why, for those who see it")
		case args[0] == g.cl.Self.Organization:
			return "",
				fmt.Errorf("organization %s is that of your own certificate: nobody would hear you then; let an administrator of another "+
					"organization do it", args[0])
		case o == nil:
			o = &pki.Organization{Name: args[0]}
		case o.Expelled != nil:
			return "", nil
		}
		o.Expelled = &pki.Expulsion{At: g.now, Why: why}
		next.Set(*o)
		sites, err := g.sites(ctx, o.Name)
		return fmt.Sprintf("organization %s is expelled; its sites: %s", o.Name, sites), err
	}, "the organization is expelled already: nothing to do")
}

// sites names those of an organization.
func (g *change) sites(ctx context.Context, organization string) (string, error) {
	all, err := g.cl.Registry.Sites(ctx)
	if err != nil {
		return "", err
	}
	var names []string
	for _, s := range all {
		if s.Site.Organization == organization {
			names = append(names, s.Site.Name)
		}
	}
	if len(names) == 0 {
		return "none", nil
	}
	return strings.Join(names, ", "), nil
}

func signCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	g := &change{sh: sh, opener: opener}
	return g.command(&cobra.Command{
		Use: "sign", Short: "Sign the charter anew, as it is", Args: cli.Args(cobra.NoArgs),
		Long: "Signs the charter with the founding authority in --dir and publishes it: when another founding\n" +
			"authority takes over, once every site has both in its file of authorities, which --ca then is, and\n" +
			"before any certificate of the new one is used: it then vouches for the same organizations. And when\n" +
			"the registry has lost it, or was restored.",
		Example: "  weir federation sign --dir new-authority",
	}, func(_ context.Context, next *pki.Charter, _ []string) (string, error) {
		return "the charter is signed", g.succeed(next)
	}, "")
}
