// SPDX-License-Identifier: Apache-2.0

// Package exchangecmd has `weir exchange`: organizations lend each other room.
package exchangecmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/exchange"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

// Command is `weir exchange`.
func Command(sh *cli.Shell, connect access.Connector) *cobra.Command {
	o := access.NewOpener(sh.Getenv, connect)
	g := group{sh, o}
	c := cli.Group(&cobra.Command{Use: "exchange", Short: "Lend room to other organizations, and borrow it"},
		g.offer(), g.withdraw(), g.find(), g.request(), g.accept(), g.decline(), g.ready(), g.room(), g.status(), g.usage(), g.try(),
		g.end(), g.verify())
	o.Flags(c)
	return c
}

// group is what the commands share.
type group struct {
	sh     *cli.Shell
	opener *access.Opener
}

// run opens the federation for a command, and prints what do returns, if anything.
func (g group) run(do func(ctx context.Context, d *exchange.Desk, args []string) (string, error)) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		cl, err := g.opener.Open()
		if err != nil {
			return err
		}
		defer cl.Close()
		d := &exchange.Desk{Book: cl.Registry, Organization: cl.Self.Organization, By: cl.Self.String(), Now: g.sh.Now,
			Gateways: func(ctx context.Context, name string) (names []string, _ error) {
				all, err := cl.Registry.Sites(ctx)
				if err != nil {
					return nil, err
				}
				for _, s := range all {
					for _, gw := range s.Site.Gateways {
						if s.Site.Name == name {
							names = append(names, gw.Name)
						}
					}
				}
				return names, nil // of a site that is gone none
			}}
		text, err := do(c.Context(), d, args)
		if err != nil {
			return access.Repeatable(err)
		}
		if text == "" {
			return nil
		}
		return g.sh.Say("%s\n", text)
	}
}

// short is how an agreement is named to people: enough of its ID.
func short(id string) string { return id[:8] }

// amount reads the value of a flag.
func amount(flag, text string) (quantity.Bytes, error) {
	if text == "" {
		return 0, nil
	}
	n, err := quantity.ParseBytes(text)
	if err != nil {
		return 0, cli.Usage("--%s: %v", flag, err)
	}
	return n, nil
}

// when reads a time: a day, a day and an hour, or how long from now.
func (g group) when(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{time.RFC3339, "2006-01-02"} {
		if t, err := time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	d, err := span(flag, text)
	if err != nil {
		return time.Time{}, cli.Usage("--%s is %q: write a day, such as 2027-12-31, or a time span, such as 90d or 12h", flag, text)
	}
	return g.sh.Now().Add(time.Duration(d)).UTC(), nil
}

// span reads a time span, also in days.
func span(flag, text string) (quantity.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		if _, err := fmt.Sscanf(days+"|", "%d|", &n); err != nil || n < 0 || n > 100_000 {
			return 0, cli.Usage("--%s is %q: write a number of days, such as 90d", flag, text)
		}
		return quantity.Duration(time.Duration(n) * 24 * time.Hour), nil
	}
	d, err := quantity.ParseDuration(text)
	if err != nil {
		return 0, cli.Usage("--%s: %v, or 90d", flag, err)
	}
	return d, nil
}

// spanned is a time span for people.
func spanned(d quantity.Duration) string {
	const day = quantity.Duration(24 * time.Hour)
	if d > 0 && d%day == 0 {
		return fmt.Sprintf("%d days", d/day)
	}
	return d.String()
}

// move says whose move it is, to one of the parties.
func move(a exchange.Agreement, organization string) string {
	is := a.Request.Guest
	switch {
	case a.Move == paper.Nobody:
		return "-"
	case a.Move == paper.Host:
		is = a.Request.Host
	}
	if is == organization {
		return "yours"
	}
	return is
}
