// SPDX-License-Identifier: Apache-2.0

package federationcmd

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
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

// Shown is what `weir federation show -o json` prints.
type Shown struct {
	Federation string `json:"federation"`
	// Serial is 0 when there is no charter.
	Serial        uint64      `json:"serial"`
	Made          time.Time   `json:"made,omitzero"`
	SignedSince   time.Time   `json:"signedSince,omitzero"`
	Conceals      bool        `json:"conceals"`
	Organizations []ShownLine `json:"organizations"`
	// Labels are what the charter says of sites, by site.
	Labels map[string]map[string]string `json:"labels,omitempty"`
}

// ShownLine is one organization.
type ShownLine struct {
	Name        string           `json:"name"`
	Authorities []ShownAuthority `json:"authorities"`
	Expelled    *pki.Expulsion   `json:"expelled,omitempty"`
}

// ShownAuthority is one authority of an organization.
type ShownAuthority struct {
	// Fingerprint is the SHA-256 of its certificate.
	Fingerprint string    `json:"fingerprint"`
	Subject     string    `json:"subject"`
	Expires     time.Time `json:"expires"`
}

func showCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var output, save string
	c := &cobra.Command{
		Use: "show", Short: "Show the organizations and who vouches for each", Args: cli.Args(cobra.NoArgs),
		Long: "Shows the charter that the registry has, if a founding authority in --ca has signed it. With --save\n" +
			"it is written to a file, as it was signed: `weir exchange verify --charter` reads that.",
		Example: "  weir federation show\n  weir federation show --save charter.jws",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			roots, err := os.ReadFile(opener.CA)
			if err != nil {
				return fmt.Errorf("--ca: %w", err)
			}
			shown := Shown{Federation: cl.Self.Federation, Organizations: []ShownLine{}}
			there, _, err := cl.Registry.GetCharter(c.Context())
			switch {
			case errors.Is(err, federation.ErrNotFound) && save != "":
				return fmt.Errorf("--save: federation %s has no charter: leave --save out", cl.Self.Federation)
			case errors.Is(err, federation.ErrNotFound):
			case err != nil:
				return err
			default:
				is, err := pki.ReadCharter(roots, cl.Self.Federation, there.Signed)
				if err != nil {
					return fmt.Errorf("the registry's charter: %w", err)
				}
				if shown, err = show(is); err != nil {
					return err
				}
				if save != "" {
					if err := machine.WriteFile(save, []byte(there.Signed), false); err != nil {
						return fmt.Errorf("--save: %w", err)
					}
				}
			}
			if output == "json" {
				return cli.WriteJSON(sh.Out, shown)
			}
			return shown.write(sh)
		},
	}
	cli.OutputFlag(c, &output)
	c.Flags().StringVar(&save, "save", "", "`FILE` to write the signed charter to")
	return c
}

// labels lists labels in the order of their names.
func labels(all map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, labelled(name, all[name]))
	}
	return strings.Join(out, ", ")
}

func show(c pki.Charter) (Shown, error) {
	s := Shown{Federation: c.Federation, Serial: c.Serial, Made: c.Made, SignedSince: c.SignedSince, Conceals: c.Conceals, Labels: c.Labels}
	for _, o := range c.Organizations {
		l := ShownLine{Name: o.Name, Authorities: []ShownAuthority{}, Expelled: o.Expelled}
		for _, text := range o.Authorities {
			print, err := pki.Fingerprint(text)
			if err != nil {
				return s, err
			}
			b, _ := pem.Decode([]byte(text))
			cert, err := x509.ParseCertificate(b.Bytes)
			if err != nil {
				return s, err
			}
			l.Authorities = append(l.Authorities, ShownAuthority{print, cert.Subject.String(), cert.NotAfter.UTC()})
		}
		s.Organizations = append(s.Organizations, l)
	}
	return s, nil
}

func (s Shown) write(sh *cli.Shell) error {
	if s.Serial == 0 {
		return sh.Say("Federation %s has no charter: its founding authority vouches for everybody. `weir federation admit` makes one.\n",
			s.Federation)
	}
	if err := sh.Say("Federation %s, charter %d of %s\n\n", s.Federation, s.Serial, cli.Stamp(s.Made)); err != nil {
		return err
	}
	var t cli.Table
	t.Row("ORGANIZATION", "AUTHORITIES", "EXPIRES", "STATE")
	for _, o := range s.Organizations {
		var prints, ends []string
		for _, a := range o.Authorities {
			prints, ends = append(prints, short(a.Fingerprint)), append(ends, cli.Stamp(a.Expires))
		}
		state := "admitted"
		if o.Expelled != nil {
			state = fmt.Sprintf("expelled at %s: %s", cli.Stamp(o.Expelled.At), o.Expelled.Why)
		}
		t.Row(o.Name, strings.Join(prints, ","), strings.Join(ends, ","), state)
	}
	if err := t.Write(sh.Out); err != nil {
		return err
	}
	for _, site := range slices.Sorted(maps.Keys(s.Labels)) {
		if err := sh.Say("\nOf site %s the charter says: %s", site, labels(s.Labels[site])); err != nil {
			return err
		}
	}
	if len(s.Labels) > 0 {
		if err := sh.Say("\n"); err != nil {
			return err
		}
	}
	who := "All organizations are shown all volumes: `weir federation conceal` ends that."
	if s.Conceals {
		who = "An organization is shown only the volumes that concern it."
	}
	if err := sh.Say("\n%s", who); err != nil {
		return err
	}
	if s.SignedSince.IsZero() {
		return sh.Say("\nRecords of the registry count without a signature: `weir federation require-signatures` ends that.\n")
	}
	return sh.Say("\nRecords of the registry count only with a signature, since %s.\n", cli.Stamp(s.SignedSince))
}
