// SPDX-License-Identifier: Apache-2.0

package exchangecmd

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/exchange"
	"github.com/weir-storage/weir/exchange/borrowed"
	"github.com/weir-storage/weir/exchange/ledger"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/store"
)

func (g group) room() *cobra.Command {
	var much string
	c := &cobra.Command{
		Use: "room ID GATEWAY", Short: "Say how much of an agreement one of your gateways may fill", Args: cli.Args(cobra.ExactArgs(2)),
		Long: "Says how much of the room of an agreement of kind Store one of your gateways may fill. The host's\n" +
			"store takes no more from it, also while the registry is away.",
		Example: "  weir exchange room 3f9c02d7 gw-1 --amount 2Ti",
		RunE: g.run(func(ctx context.Context, d *exchange.Desk, args []string) (string, error) {
			n, err := amount("amount", much)
			if err != nil {
				return "", err
			}
			a, err := d.Find(ctx, args[0])
			if err != nil {
				return "", err
			}
			if err := d.Room(ctx, a.Request.ID, args[1], n); err != nil {
				return "", err
			}
			return fmt.Sprintf("gateway %s may fill %v of agreement %s", args[1], n, short(a.Request.ID)), nil
		}),
	}
	c.Flags().StringVar(&much, "amount", "", "how much, such as 2Ti")
	return c
}

// mostTried bounds what is written to try a store, in bytes.
const mostTried = 64 << 20

func (g group) try() *cobra.Command {
	var much string
	var keep bool
	c := &cobra.Command{
		Use: "try ID", Short: "Write, read and delete an object in a borrowed store", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Does what a gateway does with a lent store: gets keys, writes an object, reads it back, lists and\n" +
			"deletes it, and says how long that took. It needs a gateway's certificate (--cert, or --config with\n" +
			"a gateway's file). It uses room that the gateway may fill, and is counted.",
		Example: "  weir exchange try 3f9c02d7 --config gateway.yaml --amount 16Mi",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		size, err := amount("amount", much)
		if err != nil {
			return err
		}
		if size <= 0 || size > mostTried {
			return cli.Usage("--amount is %v: write from 1 byte to 64Mi", size)
		}
		cl, err := g.opener.Open()
		if err != nil {
			return err
		}
		defer cl.Close()
		d := &exchange.Desk{Book: cl.Registry, Organization: cl.Self.Organization, By: cl.Self.String(), Now: g.sh.Now}
		a, err := d.Find(c.Context(), args[0])
		switch {
		case err != nil:
			return access.Repeatable(err)
		case a.Request.Kind != paper.KindStore:
			return fmt.Errorf("agreement %s: kind is %s: there is no store to try, the room is at the gateways of site %s",
				short(a.Request.ID), a.Request.Kind, a.Request.Site)
		case cl.Self.Part != pki.PartGateway:
			return cli.Usage("--cert: it is of part %q: a lent store knows gateways: give a gateway's certificate", cl.Self.Part)
		}
		return g.tries(c.Context(), cl, a, int(size), keep)
	}
	c.Flags().StringVar(&much, "amount", "1Mi", "how large the object is")
	c.Flags().BoolVar(&keep, "keep", false, "do not delete it")
	return c
}

// tries does it, and prints each step.
func (g group) tries(ctx context.Context, cl *access.Client, a exchange.Agreement, size int, keep bool) (err error) {
	r := a.Request
	switch {
	case r.Guest != cl.Self.Organization:
		return fmt.Errorf("agreement %s: %q borrows by it, and this certificate is of %q", short(r.ID), r.Guest, cl.Self.Organization)
	case a.Answer == nil || a.Answer.Ready == nil:
		return fmt.Errorf("agreement %s is %s: %s", short(r.ID), a.Phase, a.Why)
	}
	dir, err := os.MkdirTemp("", "weir-try")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l, err := ledger.Open(filepath.Join(dir, "ledger"), g.sh.Now)
	if err != nil {
		return err
	}
	s, err := borrowed.New(borrowed.Config{Agreement: r.ID, Guest: r.Guest, Host: r.Host, Site: r.Site, Endpoint: a.Answer.Ready.Endpoint,
		Gateway: cl.Self.Gateway, Credentials: cl.Credentials, Ledger: l, Book: cl.Registry, Now: g.sh.Now})
	if err != nil {
		return err
	}
	text := make([]byte, size)
	if _, err := rand.Read(text); err != nil {
		return err
	}
	name := fmt.Sprintf("tried/%d", g.sh.Now().UnixNano())
	read := make([]byte, size)
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"written", func() error { return s.Put(ctx, name, int64(size), bytes.NewReader(text)) }},
		{"read", func() error {
			err := s.GetRange(ctx, name, 0, read)
			if err == nil && !bytes.Equal(read, text) {
				err = errors.New("what was read is not what was written: do not use this store")
			}
			return err
		}},
		{"listed", func() error {
			found := false
			err := s.List(ctx, name, func(i store.Info) error { found = found || i.Name == name; return nil })
			if err == nil && !found {
				err = errors.New("it is not in the list: do not use this store")
			}
			return err
		}},
		{"deleted", func() error { return s.Delete(ctx, name) }},
		{"counted", func() error { return s.Count(ctx) }},
	} {
		if keep && step.what == "deleted" {
			continue
		}
		began := g.sh.Now()
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		if err := g.sh.Say("%s after %v\n", step.what, g.sh.Now().Sub(began).Round(time.Millisecond)); err != nil {
			return err
		}
	}
	c := l.Of(r.ID)[cl.Self.Gateway]
	return g.sh.Say("gateway %s has %d objects of %s there\n", cl.Self.Gateway, c.Objects, cli.Bytes(int64(c.Stored)))
}
