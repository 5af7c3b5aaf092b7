// SPDX-License-Identifier: Apache-2.0

package exchangecmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/exchange"
	"github.com/weir-storage/weir/federation/paper"
)

func (g group) request() *cobra.Command {
	var want exchange.Want
	var much, until, wait string
	c := &cobra.Command{
		Use: "request ORGANIZATION/OFFER", Short: "Ask for room that is offered", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Asks for room, by the words of the offer: its price, its terms and its notice. What you ask binds\n" +
			"you until it is answered, or withdrawn with `weir exchange end`. It prints the agreement's ID.",
		Example: "  weir exchange request SURF/disks --amount 10Ti --until 2027-12-31 --purpose 'climate runs'",
		RunE: g.run(func(ctx context.Context, d *exchange.Desk, args []string) (string, error) {
			i := strings.LastIndex(args[0], "/")
			if i <= 0 || i == len(args[0])-1 {
				return "", cli.Usage("%q names no offer: write ORGANIZATION/OFFER, as `weir exchange find` prints it", args[0])
			}
			want.Host, want.Offer = args[0][:i], args[0][i+1:]
			var err error
			if want.Amount, err = amount("amount", much); err != nil {
				return "", err
			}
			if want.Until, err = g.when("until", until); err != nil {
				return "", err
			}
			if want.AnswerBy, err = g.when("answer-by", wait); err != nil {
				return "", err
			}
			id, err := uuid.NewRandomFromReader(g.sh.Random)
			if err != nil {
				return "", err
			}
			want.ID = id.String()
			r, err := d.Ask(ctx, want)
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("agreement %s is asked for: %s accepts or declines it by %s", r.ID, r.Host, cli.Stamp(r.AnswerBy)), nil
		}),
	}
	f := c.Flags()
	f.StringVar(&much, "amount", "", "how much, such as 10Ti")
	f.StringVar(&until, "until", "", "until which `DAY`, or for how long, such as 365d")
	f.StringVar(&wait, "answer-by", "30d", "until which `DAY` you wait for the answer")
	f.StringVar(&want.Purpose, "purpose", "", "what it is for, as text for the host")
	return c
}

// one is a command about one agreement, which its argument names.
func (g group) one(c *cobra.Command, do func(ctx context.Context, d *exchange.Desk, a exchange.Agreement) (string, error)) *cobra.Command {
	c.Args = cli.Args(cobra.ExactArgs(1))
	c.RunE = g.run(func(ctx context.Context, d *exchange.Desk, args []string) (string, error) {
		a, err := d.Find(ctx, args[0])
		if err != nil {
			return "", err
		}
		return do(ctx, d, a)
	})
	return c
}

func (g group) accept() *cobra.Command {
	return g.one(&cobra.Command{
		Use: "accept ID", Short: "Accept a request",
		Long: "Accepts a request, exactly as it was asked. What it is about is taken from the offer. Both\n" +
			"organizations have then signed the same words.",
		Example: "  weir exchange accept 3f9c02d7",
	}, func(ctx context.Context, d *exchange.Desk, a exchange.Agreement) (string, error) {
		if err := d.Accept(ctx, a.Request.ID, false); err != nil {
			return "", err
		}
		return fmt.Sprintf("agreement %s with %s about %v is accepted", short(a.Request.ID), a.Request.Guest, a.Request.Amount), nil
	})
}

func (g group) decline() *cobra.Command {
	var why string
	c := g.one(&cobra.Command{
		Use: "decline ID", Short: "Decline a request", Long: "Declines a request. The guest reads why.",
		Example: "  weir exchange decline 3f9c02d7 --why 'only until June'",
	}, func(ctx context.Context, d *exchange.Desk, a exchange.Agreement) (string, error) {
		if err := d.Decline(ctx, a.Request.ID, why); err != nil {
			return "", err
		}
		return fmt.Sprintf("agreement %s with %s is declined", short(a.Request.ID), a.Request.Guest), nil
	})
	c.Flags().StringVar(&why, "why", "", "the reason")
	return c
}

func (g group) ready() *cobra.Command {
	var at paper.Place
	c := g.one(&cobra.Command{
		Use: "ready ID", Short: "Say that the room of an agreement is there",
		Long: "Says that the room is there: an agreement that was accepted is active from then on. Of kind Store\n" +
			"--endpoint says where; Copy and Cache have none, since the room is at the site's gateways. An\n" +
			"operator does it by itself; this is for sites without Kubernetes.",
		Example: "  weir exchange ready 3f9c02d7 --endpoint https://store.ams.example.org:7005\n  weir exchange ready 81d0aa34",
	}, func(ctx context.Context, d *exchange.Desk, a exchange.Agreement) (string, error) {
		if err := d.Ready(ctx, a.Request.ID, at); err != nil {
			return "", err
		}
		return fmt.Sprintf("agreement %s is active", short(a.Request.ID)), nil
	})
	c.Flags().StringVar(&at.Endpoint, "endpoint", "", "`URL` of the store, of kind Store")
	return c
}

func (g group) end() *cobra.Command {
	var why string
	var drained, confirm, unpaid, gone, deleting bool
	c := g.one(&cobra.Command{
		Use: "end ID", Short: "Give notice of an agreement, and say what follows",
		Long: "Gives notice of an agreement, or withdraws a request that was not answered. The agreement ends\n" +
			"when the notice is over; until then the guest brings elsewhere what it has there. Operators say\n" +
			"by themselves that a guest has drained, that a host deletes, and that it was seen; for sites\n" +
			"without Kubernetes there are flags. --unpaid and --host-gone are for a side that does not keep\n" +
			"the agreement.",
		Example: "  weir exchange end 3f9c02d7 --why 'the disks are old'",
	}, func(ctx context.Context, d *exchange.Desk, a exchange.Agreement) (string, error) {
		id := a.Request.ID
		var err error
		switch {
		case drained:
			err = d.Drained(ctx, id, why)
		case confirm:
			err = d.Confirm(ctx, id)
		case unpaid:
			err = d.Unpaid(ctx, id, why)
		case gone:
			err = d.HostGone(ctx, id, why)
		case deleting:
			if err = d.Delete(ctx, id); err == nil {
				_, err = d.Finish(ctx, id)
			}
		default:
			err = d.End(ctx, id, why)
		}
		if err != nil {
			return "", err
		}
		if a, err = d.Agreement(ctx, id); err != nil {
			return "", err
		}
		return fmt.Sprintf("agreement %s with %s is %s: %s", short(id), a.Other(d.Organization), a.Phase, a.Why), nil
	})
	f := c.Flags()
	f.StringVar(&why, "why", "", "the reason")
	f.BoolVar(&drained, "drained", false, "guest: nothing there is needed any more")
	f.BoolVar(&confirm, "confirm", false, "guest: the host has deleted everything")
	f.BoolVar(&gone, "host-gone", false, "guest: the host does not keep the agreement")
	f.BoolVar(&unpaid, "unpaid", false, "host: the guest did not pay")
	f.BoolVar(&deleting, "delete", false, "host: delete everything, when the guest drained or its time is over; again for the receipt")
	c.MarkFlagsMutuallyExclusive("drained", "confirm", "host-gone", "unpaid", "delete")
	return c
}
