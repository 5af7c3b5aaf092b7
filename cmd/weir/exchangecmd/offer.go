// SPDX-License-Identifier: Apache-2.0

package exchangecmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/exchange"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

// lentAs is what an amount of a kind is of.
var lentAs = map[paper.Kind]string{paper.KindStore: "of store", paper.KindCopy: "for copies", paper.KindCache: "of cache"}

func (g group) offer() *cobra.Command {
	var o paper.Offer
	var kind, class, all, least, automatic, from, until, notice, grace string
	c := &cobra.Command{
		Use: "offer NAME", Short: "Offer room, or change an offer", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Offers room at a site of your organization to others, or changes an offer. Agreements that were made\n" +
			"go on by their own words. --kind Store is room for objects, behind `weir store`; Copy is room for\n" +
			"copies of volumes at the site's gateways, by the volumes' sizes; Cache is room in their cache pools,\n" +
			"by what volumes reserve.",
		Example: "  weir exchange offer disks --site ams --amount 100Ti --automatic 5Ti --price 'free until 2028'",
		RunE: g.run(func(ctx context.Context, d *exchange.Desk, args []string) (string, error) {
			o.Name, o.Kind, o.Class = args[0], paper.Kind(kind), paper.Class(class)
			var err error
			for _, f := range []struct {
				name, text string
				to         *quantity.Bytes
			}{{"amount", all, &o.Amount}, {"least", least, &o.Least}, {"automatic", automatic, &o.Automatic}} {
				if *f.to, err = amount(f.name, f.text); err != nil {
					return "", err
				}
			}
			if o.From, err = g.when("from", from); err != nil {
				return "", err
			}
			if o.Until, err = g.when("until", until); err != nil {
				return "", err
			}
			if o.Notice, err = span("notice", notice); err != nil {
				return "", err
			}
			if o.Grace, err = span("grace", grace); err != nil {
				return "", err
			}
			changed, err := d.Offer(ctx, o)
			switch {
			case err != nil:
				return "", err
			case !changed:
				return fmt.Sprintf("offer %s is so already", o.Name), nil
			}
			return fmt.Sprintf("%s %s at site %s are offered as %s", o.Amount, lentAs[o.Kind], o.Site, o.Name), nil
		}),
	}
	f := c.Flags()
	f.StringVar(&o.Site, "site", "", "`SITE` of yours where the room is")
	f.StringVar(&kind, "kind", string(paper.KindStore), "what is lent: Store, Copy or Cache")
	f.StringVar(&all, "amount", "", "how much in all, such as 100Ti")
	f.StringVar(&least, "least", "", "the smallest request, such as 1Ti")
	f.StringVar(&automatic, "automatic", "", "requests up to this are accepted by your operator itself")
	f.StringVar(&o.Media, "media", "", "what it is on, such as HDD")
	f.StringVar(&class, "class", "", "how fast it is: Archive, Standard or Fast")
	f.StringVar(&o.Price, "price", "", "what it costs, as text")
	f.StringVar(&o.Terms, "terms", "", "what else holds, as text")
	f.StringVar(&from, "from", "", "agreements begin at this `DAY` at the earliest")
	f.StringVar(&until, "until", "", "agreements end at this `DAY` at the latest")
	f.StringVar(&notice, "notice", "30d", "how long before its end an agreement is given notice of")
	f.StringVar(&grace, "grace", "7d", "how long after its end the guest can still read")
	f.StringSliceVar(&o.To, "to", nil, "`ORGANIZATION`s that may ask; none: all")
	return c
}

func (g group) withdraw() *cobra.Command {
	return &cobra.Command{
		Use: "withdraw NAME", Short: "Take an offer back", Args: cli.Args(cobra.ExactArgs(1)),
		Long:    "Takes an offer back: nobody may ask any more. Agreements that were made go on.",
		Example: "  weir exchange withdraw disks",
		RunE: g.run(func(ctx context.Context, d *exchange.Desk, args []string) (string, error) {
			gone, err := d.Withdraw(ctx, args[0])
			switch {
			case err != nil:
				return "", err
			case gone:
				return fmt.Sprintf("offer %s is gone", args[0]), nil
			}
			return fmt.Sprintf("offer %s is closed; agreements that took from it go on", args[0]), nil
		}),
	}
}

// OfferLine is an offer in `weir exchange find`. With -o json the command prints a list of them.
type OfferLine struct {
	paper.Offer
	Free quantity.Bytes `json:"free"`
}

func (g group) find() *cobra.Command {
	var output, kind, least, host string
	var mine bool
	c := &cobra.Command{
		Use: "find", Short: "List offers", Args: cli.Args(cobra.NoArgs),
		Long:    "Lists what other organizations offer to yours, the largest first, or with --mine what yours offers.",
		Example: "  weir exchange find --kind Store --amount 10Ti\n  weir exchange find -o json",
		RunE: g.run(func(ctx context.Context, d *exchange.Desk, _ []string) (string, error) {
			if err := cli.CheckOutput(output); err != nil {
				return "", err
			}
			n, err := amount("amount", least)
			if err != nil {
				return "", err
			}
			if kind != "" && !slices.Contains(paper.Kinds(), paper.Kind(kind)) {
				return "", cli.Usage("--kind is %q: write one of %q", kind, paper.Kinds())
			}
			of := host
			if mine {
				of = d.Organization
			}
			all, err := d.Offers(ctx, of)
			if err != nil {
				return "", err
			}
			lines := []OfferLine{}
			for _, o := range all {
				l := OfferLine{Offer: o, Free: o.Free()}
				if (mine || o.For(d.Organization) && !o.Closed && l.Free >= max(n, o.Least)) && (kind == "" || o.Kind == paper.Kind(kind)) {
					lines = append(lines, l)
				}
			}
			slices.SortStableFunc(lines, func(a, b OfferLine) int { return cmp.Compare(b.Free, a.Free) })
			if output == "json" {
				return "", cli.WriteJSON(g.sh.Out, lines)
			}
			return "", writeOffers(g.sh.Out, lines)
		}),
	}
	cli.OutputFlag(c, &output)
	f := c.Flags()
	f.StringVar(&kind, "kind", "", "only this kind: Store, Copy or Cache")
	f.StringVar(&least, "amount", "", "only offers that have as much left")
	f.StringVar(&host, "host", "", "only offers of this `ORGANIZATION`")
	f.BoolVar(&mine, "mine", false, "your own organization's offers")
	return c
}

func writeOffers(w io.Writer, lines []OfferLine) error {
	if len(lines) == 0 {
		_, err := fmt.Fprintln(w, "There are no such offers.")
		return err
	}
	var b cli.Table
	b.Row("OFFER", "KIND", "SITE", "LEFT", "OF", "AUTOMATIC", "NOTICE", "MEDIA", "PRICE")
	for _, l := range lines {
		price, _, _ := strings.Cut(l.Price, "\n")
		if l.Closed {
			price = "(closed) " + price
		}
		b.Row(l.Organization+"/"+l.Name, string(l.Kind), l.Site, l.Free.String(), l.Amount.String(), l.Automatic.String(),
			spanned(l.Notice), cmp.Or(strings.TrimSpace(l.Media+" "+string(l.Class)), "-"), cmp.Or(price, "-"))
	}
	return b.Write(w)
}
