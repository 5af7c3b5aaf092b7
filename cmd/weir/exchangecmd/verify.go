// SPDX-License-Identifier: Apache-2.0

package exchangecmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/exchange/proof"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

// Verified is what `weir exchange verify -o json` prints.
type Verified struct {
	Federation string `json:"federation"`
	// Charter is the serial of the charter by which it was checked, and Made when that was signed;
	// 0: there is none, and the founding authority vouches for everybody.
	Charter    uint64         `json:"charter"`
	Made       time.Time      `json:"made,omitzero"`
	Agreements []proof.Report `json:"agreements"`
}

func (g group) verify() *cobra.Command {
	var file, charter, output string
	var none bool
	c := &cobra.Command{
		Use: "verify [-f FILE]", Short: "Check what both sides signed, without a registry", Args: cli.Args(cobra.NoArgs),
		Long: "Checks the papers in StorageAgreements, as kubectl prints them with -o json: that each is signed by\n" +
			"its organization, that the host accepted the words that the guest asked for, and that the object\n" +
			"shows these. It prints what was said, and what follows. Certificates that have ended since count,\n" +
			"and so do authorities that the charter has as former ones.\n" +
			"With --charter nobody is asked, and --ca is enough: `weir federation show --save FILE` writes the\n" +
			"charter. Without --charter it is the registry's. The command fails unless all is genuine.",
		Example: "  kubectl get storageagreement 3f9c02d7-… -o json | weir exchange verify\n" +
			"  weir exchange verify -f agreements.json --ca ca.crt --charter charter.jws -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			objects, err := readAgreements(g.sh.In, file)
			if err != nil {
				return err
			}
			creds, err := g.reader(c.Context(), charter, none)
			if err != nil {
				return err
			}
			is, _ := creds.Charter()
			out := Verified{Federation: creds.Identity().Federation, Charter: is.Serial, Made: is.Made}
			seal, bad := signed.New(creds, nil, nil), 0
			for _, o := range objects {
				r := check(seal, o, g.sh.Now())
				if !r.Genuine {
					bad++
				}
				out.Agreements = append(out.Agreements, r)
			}
			if output == "json" {
				err = cli.WriteJSON(g.sh.Out, out)
			} else {
				err = out.write(g.sh)
			}
			if err == nil && bad > 0 {
				err = fmt.Errorf("verify: %d of %d agreements are not genuine: what is wrong is above", bad, len(objects))
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVarP(&file, "file", "f", "-", "`FILE` with StorageAgreements, as JSON; - is the standard input")
	f.StringVar(&charter, "charter", "", "`FILE` with the federation's charter; then nobody is asked")
	f.BoolVar(&none, "no-charter", false, "the federation has no charter, and its founding authority vouches for everybody: ask nobody")
	c.MarkFlagsMutuallyExclusive("charter", "no-charter")
	cli.OutputFlag(c, &output)
	return c
}

// reader makes credentials that check signatures, with the charter of a file, or none, or the
// registry's.
func (g group) reader(ctx context.Context, file string, none bool) (*pki.Credentials, error) {
	var jws, from string
	switch {
	case none:
		if err := g.opener.Alone(); err != nil {
			return nil, err
		}
	case file != "":
		if err := g.opener.Alone(); err != nil {
			return nil, err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--charter: %w", err)
		}
		jws, from = strings.TrimSpace(string(text)), fmt.Sprintf("--charter %q", file)
	default:
		cl, err := g.opener.Open()
		if err != nil {
			return nil, fmt.Errorf("%w; or give --charter, and no registry is needed", err)
		}
		defer cl.Close()
		c, _, err := cl.Registry.GetCharter(ctx)
		if err != nil && !errors.Is(err, federation.ErrNotFound) {
			return nil, fmt.Errorf("%w; with --charter FILE no registry is needed", err)
		}
		jws, from, g.opener.Federation = c.Signed, "the registry's charter", cl.Self.Federation
	}
	roots, err := os.ReadFile(g.opener.CA)
	if err != nil {
		return nil, fmt.Errorf("--ca: %w", err)
	}
	creds, err := pki.Reader(roots, g.opener.Federation, g.sh.Now)
	if err != nil {
		return nil, fmt.Errorf("--ca %q: %w", g.opener.CA, err)
	}
	if jws == "" && !none && file != "" {
		return nil, fmt.Errorf("%s: it is empty: have `weir federation show --save FILE` write it", from)
	}
	if jws != "" {
		if _, err := creds.Adopt(jws); err != nil {
			return nil, fmt.Errorf("%s: %w: give the charter of that federation, and the --ca that has its founding authority", from, err)
		}
	}
	return creds, nil
}

// mostInput is how long the input may be, in bytes: ten thousand agreements are less.
const mostInput = 256 << 20

// readAgreements reads StorageAgreements, one or a list or several one after another.
func readAgreements(in io.Reader, file string) (out []v1alpha1.StorageAgreement, err error) {
	from := "the standard input"
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		defer func() { _ = f.Close() }() // it was only read
		in, from = f, file
	}
	fail := func(format string, a ...any) ([]v1alpha1.StorageAgreement, error) {
		return nil, fmt.Errorf("%s: %s: give what `kubectl get storageagreement ID -o json` prints", from, fmt.Sprintf(format, a...))
	}
	d := json.NewDecoder(&io.LimitedReader{R: in, N: mostInput})
	for {
		var text json.RawMessage
		switch err := d.Decode(&text); {
		case errors.Is(err, io.EOF) && len(out) == 0:
			return fail("it has no StorageAgreement")
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return fail("it is no JSON, from byte %d on (%v)", d.InputOffset(), err)
		}
		var list struct {
			Kind  string            `json:"kind"`
			Items []json.RawMessage `json:"items"`
		}
		items := []json.RawMessage{text}
		if err := json.Unmarshal(text, &list); err != nil {
			return fail("it has %s, which is no object (%v)", cut(text), err)
		}
		if list.Kind == "List" || list.Kind == "StorageAgreementList" {
			items = list.Items
		}
		for i, item := range items {
			var o v1alpha1.StorageAgreement
			if err := json.Unmarshal(item, &o); err != nil {
				return fail("object %d of %d is no StorageAgreement (%v)", i+1, len(items), err)
			}
			if group, _, _ := strings.Cut(o.APIVersion, "/"); o.Kind != "StorageAgreement" || group != v1alpha1.GroupVersion.Group {
				return fail("object %d of %d, %q, is a %q of %q, and no StorageAgreement", i+1, len(items), o.Name, o.Kind,
					o.APIVersion)
			}
			out = append(out, o)
		}
	}
}

// cut is the beginning of a text.
func cut(text []byte) string {
	if len(text) > 40 {
		return string(text[:40]) + "…"
	}
	return string(text)
}

// check checks the papers of an object, and that it shows what they say.
func check(seal *signed.Seal, o v1alpha1.StorageAgreement, now time.Time) proof.Report {
	var papers []proof.Paper
	for _, p := range o.Status.Papers {
		papers = append(papers, proof.Paper{Name: p.Name, Value: []byte(p.Value)})
	}
	r := proof.Check(seal, o.Name, papers, now)
	if r.Terms == nil {
		return r
	}
	t, s := r.Terms, o.Status
	shows := func(field, is, want string) {
		if is != "" && is != want {
			r.Doubt("agreement %s: the object shows status.%s %q, and the paper that was signed says %q: believe the paper, and see who "+
				"may change the object's status", o.Name, field, is, want)
		}
	}
	shows("guest", s.Guest, t.Guest)
	shows("host", s.Host, t.Host)
	shows("offer", s.Offer, t.Offer)
	shows("kind", s.Kind, string(t.Kind))
	shows("site", s.Site, t.Site)
	shows("price", s.Price, t.Price)
	shows("terms", s.Terms, t.Text)
	if s.Amount != nil && s.Amount.Value() != int64(t.Amount) {
		shows("amount", s.Amount.String(), t.Amount.String())
	}
	if s.Until != nil {
		shows("until", cli.Stamp(s.Until.Time), cli.Stamp(t.Until))
	}
	for _, d := range []struct {
		field string
		is    time.Duration
		want  fmt.Stringer
	}{{"notice", s.Notice.Duration, time.Duration(t.Notice)}, {"grace", s.Grace.Duration, time.Duration(t.Grace)}} {
		if d.is != 0 {
			shows(d.field, d.is.String(), d.want.String())
		}
	}
	return r
}

func (v Verified) write(sh *cli.Shell) error {
	by := fmt.Sprintf("by charter %d of %s", v.Charter, cli.Stamp(v.Made))
	if v.Charter == 0 {
		by = "without a charter: its founding authority vouches for everybody"
	}
	if err := sh.Say("Checked for federation %s, %s.\n", v.Federation, by); err != nil {
		return err
	}
	for _, r := range v.Agreements {
		if err := writeVerified(sh, r); err != nil {
			return err
		}
	}
	return nil
}

func writeVerified(sh *cli.Shell, r proof.Report) error {
	if err := sh.Say("\nAgreement %s\n", plain(r.Agreement)); err != nil {
		return err
	}
	var b cli.Table
	b.Row("SIDE", "WHAT", "AT", "SAID BY", "SIGNED BY", "SIGNED AT", "GENUINE")
	row := func(s proof.Signed, what, at, by string) {
		signer, when, genuine := "-", "-", "no"
		if s.By != "" {
			signer, when = fmt.Sprintf("%s (%s)", s.By, s.Part), cli.Stamp(s.At)
		}
		if s.Genuine {
			genuine = "yes"
		}
		b.Row(string(s.Side), plain(what), at, plain(by), plain(signer), when, genuine)
	}
	for _, s := range r.Said {
		row(r.Of(s.Paper), s.What+because(s.Why), cli.Stamp(s.At), s.By)
	}
	for _, s := range r.Papers { // those of which nothing can be read
		if !slices.ContainsFunc(r.Said, func(x proof.Said) bool { return x.Paper == s.Name }) {
			row(s, "-", "-", "-")
		}
	}
	if len(r.Papers) > 0 {
		if err := b.Write(sh.Out); err != nil {
			return err
		}
	}
	for _, p := range r.Problems {
		if err := sh.Say("not genuine: %s\n", plain(p)); err != nil {
			return err
		}
	}
	t := r.Terms
	if t == nil {
		return nil
	}
	now := string(r.Phase)
	if r.Move != paper.Nobody {
		now += fmt.Sprintf(", and it is the %s's move", strings.ToLower(string(r.Move)))
	}
	text := fmt.Sprintf("The papers say: %s lends %s %v at site %s until %s. It is %s: %s.", t.Host, t.Guest, t.Amount, t.Site,
		cli.Stamp(t.Until), now, r.Why)
	return sh.Say("%s\nDigest of the terms: %s\n", plain(text), r.Digest)
}

// plain is a text that others wrote, in one line of a terminal: else it could look like a row of
// the table.
func plain(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return '\ufffd'
	}, text)
}
