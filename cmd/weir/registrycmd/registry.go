// SPDX-License-Identifier: Apache-2.0

// Package registrycmd has `weir registry`: stand beside a member as its gatekeeper, back the
// registry up, restore it, and bring one that went back forward again (protocol-7).
package registrycmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
)

// Command is `weir registry`.
func Command(sh *cli.Shell, connect access.Connector) *cobra.Command {
	o := access.NewOpener(sh.Getenv, connect)
	c := cli.Group(&cobra.Command{Use: "registry", Short: "Serve the registry, back it up, restore it, and reconcile one that went back"},
		serveCommand(sh, o), statusCommand(sh, o), backupCommand(sh, o), restoreCommand(sh), reconcileCommand(sh, o))
	o.Flags(c)
	return c
}

// Status is what `weir registry status -o json` prints.
type Status struct {
	// WentBack: a gateway says so. Nothing that concerns volumes changes then.
	WentBack bool           `json:"wentBack"`
	Gateways []GatewayState `json:"gateways"` // all that are registered or said something, by name
	// Corrections are what `weir registry reconcile` would change.
	Corrections []Correction `json:"corrections"`
}

// GatewayState is what one gateway said.
type GatewayState struct {
	Name string `json:"name"`
	// Said: it has written down all that it knows better, after the last reconciliation that
	// anybody knows of.
	Said bool   `json:"said"`
	Why  string `json:"why,omitempty"`
}

// Correction is one change that would be made.
type Correction struct {
	Record  string `json:"record"` // kind and name, as in the registry's keys
	Gateway string `json:"gateway"`
	Why     string `json:"why"`
	// Branches are the homes of a volume's control record that branched, as --keep takes them. A
	// person decides for one.
	Branches []string `json:"branches,omitempty"`
}

func statusOf(w federation.Rewind) (s Status, plan []federation.Correction, missing []string, err error) {
	if plan, missing, err = w.Plan(); err != nil {
		return s, nil, nil, err
	}
	s.WentBack = len(w.Notices) > 0
	s.Gateways, s.Corrections = []GatewayState{}, []Correction{}
	for _, n := range w.Notices {
		s.Gateways = append(s.Gateways, GatewayState{Name: n.Gateway, Said: !slices.Contains(missing, n.Gateway), Why: n.Why})
	}
	for _, g := range missing {
		if !slices.ContainsFunc(s.Gateways, func(x GatewayState) bool { return x.Name == g }) {
			s.Gateways = append(s.Gateways, GatewayState{Name: g})
		}
	}
	slices.SortFunc(s.Gateways, func(a, b GatewayState) int { return cmp.Compare(a.Name, b.Name) })
	for _, c := range plan {
		s.Corrections = append(s.Corrections, Correction{Record: c.Key, Gateway: c.Gateway, Why: c.Why, Branches: c.Homes()})
	}
	return s, plan, missing, nil
}

func statusCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "status", Short: "Say whether the registry went back, who says so, and what it lacks", Args: cli.Args(cobra.NoArgs),
		Example: "  weir registry status",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			w, err := cl.Registry.ReadRewind(c.Context())
			if err != nil {
				return err
			}
			s, _, _, err := statusOf(w)
			if err != nil {
				return err
			}
			if output == "json" {
				return cli.WriteJSON(sh.Out, s)
			}
			return say(sh, s)
		},
	}
	cli.OutputFlag(c, &output)
	return c
}

// say prints a status for people.
func say(sh *cli.Shell, s Status) error {
	if !s.WentBack {
		return sh.Say("No gateway says that the registry went back.\n")
	}
	if err := sh.Say("The registry went back. Volumes go on as they are, and nothing changes hands.\n\n"); err != nil {
		return err
	}
	var gateways, corrections cli.Table
	gateways.Row("GATEWAY", "SAID ALL", "WHY")
	for _, g := range s.Gateways {
		gateways.Row(g.Name, map[bool]string{true: "yes", false: "no"}[g.Said], cmp.Or(g.Why, "-"))
	}
	if err := gateways.Write(sh.Out); err != nil {
		return err
	}
	if len(s.Corrections) == 0 {
		return sh.Say("\nIt has all that they know.\n")
	}
	corrections.Row("RECORD", "KNOWN BY", "IN THE REGISTRY IT")
	for _, c := range s.Corrections {
		corrections.Row(c.Record, c.Gateway, c.Why)
	}
	if err := sh.Say("\n"); err != nil {
		return err
	}
	if err := corrections.Write(sh.Out); err != nil {
		return err
	}
	for _, c := range s.Corrections {
		if len(c.Branches) > 0 {
			if err := sh.Say("\n%s was changed at the restored registry before anybody noticed. Decide which branch to keep: %s.\n",
				c.Record, strings.Join(c.Branches, " or ")); err != nil {
				return err
			}
		}
	}
	return nil
}

// reconcileOptions are the flags of `weir registry reconcile`.
type reconcileOptions struct {
	yes     bool
	without []string
	keep    map[string]string
}

func reconcileCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var o reconcileOptions
	c := &cobra.Command{
		Use: "reconcile", Short: "Bring a registry that went back forward to what the gateways know", Args: cli.Args(cobra.NoArgs),
		Long: "Shows what the gateways know better than a registry that was restored or replaced. With --yes it\n" +
			"writes that into the registry; then gateways believe it again, and volumes can change hands.\n" +
			"Every registered gateway must have said what it knows, which takes it some seconds once it runs.\n" +
			"One that is gone for good is left out with --without: what it alone knew is then lost.\n" +
			"If two homes went on, one as the gateways know it and one at the restored registry, --keep says\n" +
			"whose branch stays. Stop the other's gateway first: what only it acknowledged is set aside, as a\n" +
			"salvage volume.",
		Example: "  weir registry reconcile\n  weir registry reconcile --yes",
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			return o.run(c.Context(), sh, cl)
		},
	}
	c.Flags().BoolVar(&o.yes, "yes", false, "do it; without it, the command only shows what it would do")
	c.Flags().StringToStringVar(&o.keep, "keep", nil, "`VOLUME=GATEWAY`, or VOLUME=GATEWAY@EPOCH: the home whose branch of a volume stays")
	c.Flags().StringSliceVar(&o.without, "without", nil, "`GATEWAYS` that are gone for good")
	return c
}

func (o *reconcileOptions) run(ctx context.Context, sh *cli.Shell, cl *access.Client) error {
	w, err := cl.Registry.ReadRewind(ctx)
	if err != nil {
		return err
	}
	s, plan, missing, err := statusOf(w)
	if err != nil {
		return err
	}
	if err := say(sh, s); err != nil || !s.WentBack {
		return err
	}
	say := func(volume, gateway string, epoch, change uint64) (string, error) {
		return cl.Say(signed.Takeover{Volume: volume, Gateway: gateway, Epoch: epoch, Change: change})
	}
	if err := o.check(plan, missing, say); err != nil {
		return err
	}
	if !o.yes {
		return sh.Say("\nNothing was changed: `weir registry reconcile --yes` does it.\n")
	}
	now := sh.Now().UTC()
	// IDs ascend with the time of the decision, and past all that are known if a clock went back.
	last := w.Last.ID
	for _, n := range w.Notices {
		last = max(last, n.Reconciled)
	}
	id := now.Format("20060102T150405.000000000Z")
	if id <= last {
		id = last + "+"
	}
	if err := cl.Registry.Reconcile(ctx, w, plan, federation.Reconciliation{ID: id, By: cl.Self.String(), At: now}); err != nil {
		return access.Repeatable(err)
	}
	return sh.Say("\nThe registry is reconciled: %d records were brought forward. Gateways believe it again within seconds.\n", len(plan))
}

// check refuses to reconcile when something is not known or not decided.
func (o *reconcileOptions) check(plan []federation.Correction, missing []string, say federation.Say) error {
	for _, g := range o.without {
		if !slices.Contains(missing, g) {
			return cli.Usage("--without %s: no such gateway is waited for: leave it out", g)
		}
	}
	missing = slices.DeleteFunc(missing, func(g string) bool { return slices.Contains(o.without, g) })
	if len(missing) > 0 {
		return fmt.Errorf("reconcile the registry: gateways %v have not said yet what they know: start them and wait some seconds, "+
			"or, if they are gone for good, give --without with their names", missing)
	}
	kept := map[string]bool{}
	for i := range plan {
		c := &plan[i]
		volume := strings.TrimPrefix(c.Key, string(federation.KindControl)+"/")
		if home, ok := o.keep[volume]; ok && len(c.Branches) > 0 {
			kept[volume] = true
			if err := c.Keep(home, say); err != nil {
				return err
			}
		}
		if c.Undecided() {
			return fmt.Errorf("reconcile the registry: %s %s: stop the gateway of the home that is given up, and give --keep %s=GATEWAY "+
				"with the other", c.Key, c.Why, volume)
		}
	}
	for volume := range o.keep {
		if !kept[volume] {
			return cli.Usage("--keep %s: the record of this volume has no branches: leave it out", volume)
		}
	}
	return nil
}
