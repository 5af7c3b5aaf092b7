// SPDX-License-Identifier: Apache-2.0

package exchangecmd

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/exchange"
	"github.com/weir-storage/weir/federation/paper"
)

// AgreementLine is an agreement in `weir exchange status`. With -o json the command prints a list
// of them.
type AgreementLine struct {
	ID      string        `json:"id"`
	Phase   paper.Phase   `json:"phase"`
	Move    string        `json:"move"`
	Why     string        `json:"why"`
	Ends    time.Time     `json:"ends,omitzero"`
	Request paper.Request `json:"request"`
	Answer  *paper.Answer `json:"answer,omitempty"`
}

func (g group) status() *cobra.Command {
	var output string
	var all bool
	c := &cobra.Command{
		Use: "status [ID]", Short: "Show agreements, and whose move it is", Args: cli.Args(cobra.MaximumNArgs(1)),
		Long: "Shows the agreements of your organization, and whose move it is, or one agreement with all that\n" +
			"was said.",
		Example: "  weir exchange status\n  weir exchange status 3f9c02d7",
		RunE: g.run(func(ctx context.Context, d *exchange.Desk, args []string) (string, error) {
			if err := cli.CheckOutput(output); err != nil {
				return "", err
			}
			if len(args) == 1 {
				a, err := d.Find(ctx, args[0])
				if err != nil {
					return "", err
				}
				if output == "json" {
					return "", cli.WriteJSON(g.sh.Out, line(a, d.Organization))
				}
				return "", writeAgreement(g.sh.Out, a, d.Organization)
			}
			agreements, err := d.Agreements(ctx)
			if err != nil {
				return "", err
			}
			lines := []AgreementLine{}
			for _, a := range agreements {
				if all || !a.Over() {
					lines = append(lines, line(a, d.Organization))
				}
			}
			if output == "json" {
				return "", cli.WriteJSON(g.sh.Out, lines)
			}
			return "", writeAgreements(g.sh.Out, lines, d.Organization)
		}),
	}
	cli.OutputFlag(c, &output)
	c.Flags().BoolVar(&all, "all", false, "also those that are over")
	return c
}

func line(a exchange.Agreement, organization string) AgreementLine {
	return AgreementLine{ID: a.Request.ID, Phase: a.Phase, Move: move(a, organization), Why: a.Why, Ends: a.Ends, Request: a.Request,
		Answer: a.Answer}
}

func writeAgreements(w io.Writer, lines []AgreementLine, organization string) error {
	if len(lines) == 0 {
		_, err := fmt.Fprintln(w, "There are no agreements. `weir exchange find` shows what is offered.")
		return err
	}
	var b cli.Table
	b.Row("ID", "WITH", "AS", "KIND", "SITE", "AMOUNT", "STATE", "MOVE", "WHY")
	for _, l := range lines {
		with, as := l.Request.Host, "guest"
		if l.Request.Host == organization {
			with, as = l.Request.Guest, "host"
		}
		b.Row(short(l.ID), with, as, string(l.Request.Kind), l.Request.Site, l.Request.Amount.String(), string(l.Phase), l.Move, l.Why)
	}
	return b.Write(w)
}

// writeAgreement shows the terms of an agreement, and what was said in order.
func writeAgreement(w io.Writer, a exchange.Agreement, organization string) error {
	r := a.Request
	var b cli.Table
	for _, row := range [][2]string{
		{"Agreement", r.ID}, {"Guest", r.Guest}, {"Host", r.Host}, {"Offer", r.Offer}, {"Kind", string(r.Kind)}, {"Site", r.Site},
		{"Amount", r.Amount.String()}, {"Until", cli.Stamp(r.Until)}, {"Notice", spanned(r.Notice)}, {"Grace", spanned(r.Grace)},
		{"Price", cmp.Or(r.Price, "-")}, {"Terms", cmp.Or(r.Text, "-")}, {"Purpose", cmp.Or(r.Purpose, "-")}, {"Digest", r.Digest()},
		{"State", string(a.Phase)}, {"Move", move(a, organization)}, {"Why", a.Why},
	} {
		b.Row(row[0], row[1])
	}
	if err := b.Write(w); err != nil {
		return err
	}
	var told cli.Table
	told.Row("", "", "")
	for _, s := range a.Said() {
		told.Row(cli.Stamp(s.At), s.What, s.By+because(s.Why))
	}
	return told.Write(w)
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// UsageLine is what one side counted, in `weir exchange usage`. With -o json the command prints a
// list of them.
type UsageLine struct {
	Agreement string      `json:"agreement"`
	Kind      paper.Kind  `json:"kind"`
	Side      paper.Party `json:"side"`
	// Gateway is that of the guest which it is of. Of copies and cache room it is of all together.
	Gateway string    `json:"gateway,omitempty"`
	At      time.Time `json:"at"`
	paper.Counters
	// Differs says by what both sides disagree.
	Differs string `json:"differs,omitempty"`
}

func (g group) usage() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "usage [ID]", Short: "Show what both sides counted", Args: cli.Args(cobra.MaximumNArgs(1)),
		Long: "Shows what guest and host counted of your organization's agreements, or of one, and by what they\n" +
			"disagree. Of kind Store it is what each gateway stored, wrote and read; of kind Copy the sizes of\n" +
			"the volumes, and of kind Cache what they reserve.",
		Example: "  weir exchange usage\n  weir exchange usage 3f9c02d7 -o csv",
		RunE: g.run(func(ctx context.Context, d *exchange.Desk, args []string) (string, error) {
			if output != "csv" {
				if err := cli.CheckOutput(output); err != nil {
					return "", err
				}
			}
			id := ""
			if len(args) == 1 {
				a, err := d.Find(ctx, args[0])
				if err != nil {
					return "", err
				}
				id = a.Request.ID
			}
			all, err := d.Usages(ctx, id)
			if err != nil {
				return "", err
			}
			lines := []UsageLine{}
			for _, id := range slices.Sorted(maps.Keys(all)) {
				u := all[id]
				lines = append(lines, counted(id, paper.Guest, u.Guest, u)...)
				lines = append(lines, counted(id, paper.Host, u.Host, u)...)
			}
			switch output {
			case "json":
				return "", cli.WriteJSON(g.sh.Out, lines)
			case "csv":
				return "", writeCSV(g.sh.Out, lines)
			}
			return "", writeUsage(g.sh.Out, lines)
		}),
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json or csv; otherwise a table")
	return c
}

func counted(id string, side paper.Party, s exchange.Sum, u exchange.Usage) (out []UsageLine) {
	kind := cmp.Or(u.Kind, paper.KindStore)
	for _, g := range slices.Sorted(maps.Keys(s.Of)) {
		l := UsageLine{Agreement: id, Kind: kind, Side: side, Gateway: g, At: s.At, Counters: s.Of[g], Differs: u.Differs}
		if kind != paper.KindStore { // it is by the site where the room is
			l.Gateway = ""
		}
		out = append(out, l)
	}
	return out
}

// calls are what was done with a store, by columns; nothing is done with other room.
func (l UsageLine) calls(none string, bytes func(int64) string) []string {
	if l.Kind != paper.KindStore {
		return []string{none, none, none, none, none}
	}
	return []string{fmt.Sprint(l.Puts), bytes(int64(l.In)), fmt.Sprint(l.Gets), bytes(int64(l.Out)), fmt.Sprint(l.Deletes)}
}

func writeUsage(w io.Writer, lines []UsageLine) error {
	if len(lines) == 0 {
		_, err := fmt.Fprintln(w, "Nothing was counted yet.")
		return err
	}
	var b cli.Table
	stores := slices.ContainsFunc(lines, func(l UsageLine) bool { return l.Kind == paper.KindStore })
	row := func(before, calls []string, at string) {
		if stores {
			before = append(before, calls...)
		}
		b.Row(append(before, at)...)
	}
	row([]string{"ID", "KIND", "SIDE", "GATEWAY", "STORED", "BYTE-HOURS"}, []string{"WRITES", "WRITTEN", "READS", "READ", "DELETIONS"},
		"AT")
	differ := map[string]string{}
	for _, l := range lines {
		row([]string{short(l.Agreement), string(l.Kind), string(l.Side), cmp.Or(l.Gateway, "all"), cli.Bytes(int64(l.Stored)),
			strconv.FormatFloat(l.ByteHours, 'f', 0, 64)}, l.calls("-", cli.Bytes), cli.Stamp(l.At))
		if l.Differs != "" {
			differ[l.Agreement] = l.Differs
		}
	}
	if err := b.Write(w); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(differ)) {
		if _, err := fmt.Fprintf(w, "agreement %s: both sides disagree about %s\n", short(id), differ[id]); err != nil {
			return err
		}
	}
	return nil
}

func writeCSV(w io.Writer, lines []UsageLine) error {
	c := csv.NewWriter(w)
	_ = c.Write([]string{"agreement", "side", "gateway", "at", "stored_bytes", "byte_hours", "writes", "written_bytes", "reads",
		"read_bytes", "deletions", "kind"})
	for _, l := range lines {
		row := append([]string{l.Agreement, string(l.Side), l.Gateway, cli.Stamp(l.At), fmt.Sprint(int64(l.Stored)),
			strconv.FormatFloat(l.ByteHours, 'f', 0, 64)}, l.calls("", func(n int64) string { return fmt.Sprint(n) })...)
		_ = c.Write(append(row, string(l.Kind)))
	}
	c.Flush()
	return c.Error()
}
