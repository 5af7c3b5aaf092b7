// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// verdict of a check.
type verdict string

const (
	fine   verdict = "ok"
	doubt  verdict = "warn" // it works, and somebody should know
	broken verdict = "FAIL" // an install would not work
)

// finding is what one check found. Mend says what to do, when there is something to do.
type finding struct {
	Check   string
	Verdict verdict
	Found   string
	Mend    string
}

// preflight is what `weir preflight` was asked for.
type preflight struct {
	sh         *shell
	connection connection
	kubeconfig string
	namespace  string
	node, far  bool
	machine    machine
}

func (sh *shell) preflightCommand() *cobra.Command {
	p := &preflight{sh: sh, machine: thisMachine()}
	var noNode, noFar bool
	c := &cobra.Command{
		Use: "preflight [--config FILE] [--kubeconfig FILE]", Short: "Check a machine, a cluster and what they reach, before an install", Args: args(cobra.NoArgs),
		Long: "Checks what an install needs, and says what to mend. On each node: the kernel's NFS client, the clock, ports. With --config, a gateway's configuration file: certificate, " +
			"registry, store, the other sites' gateways. With --kubeconfig: the cluster, and images that it cannot pull. Nothing is changed. Exit code 1: something would not work.",
		RunE: func(c *cobra.Command, _ []string) error {
			p.node, p.far = !noNode, !noFar
			return p.run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&p.connection.config, "config", sh.getenv("WEIR_CONFIG"), "a gateway's configuration `FILE` [WEIR_CONFIG]")
	f.StringVar(&p.kubeconfig, "kubeconfig", sh.getenv("KUBECONFIG"), "`FILE` with the cluster's address [KUBECONFIG]")
	f.StringVar(&p.namespace, "namespace", defaultNamespace, "`NAMESPACE` in which the chart is installed, for --kubeconfig")
	f.BoolVar(&noNode, "no-node", false, "do not check this machine: it is no node of the cluster")
	f.BoolVar(&noFar, "no-far", false, "do not check registry, store and other sites")
	return c
}

func (p *preflight) run(ctx context.Context) error {
	var cfg *Config
	if p.connection.config != "" {
		c, err := readConfig(p.connection.config)
		if err != nil {
			return err
		}
		c.setDefaults()
		cfg = &c
	}
	if cfg == nil && !p.node && p.kubeconfig == "" {
		return usage("preflight: nothing to check: give --config, --kubeconfig, or leave --no-node out")
	}
	var found []finding
	if p.node {
		found = append(found, p.machine.check(ctx, cfg)...)
	}
	if cfg != nil && p.far {
		found = append(found, p.checkFar(ctx, *cfg)...)
	}
	if p.kubeconfig != "" {
		found = append(found, checkCluster(ctx, p.kubeconfig, p.namespace)...)
	}
	return p.report(found)
}

var errPreflight = errors.New("this would not work yet: mend what is marked FAIL, and run preflight again")

func (p *preflight) report(found []finding) error {
	w := tabwriter.NewWriter(p.sh.out, 0, 8, 2, ' ', 0)
	bad := false
	for _, f := range found {
		bad = bad || f.Verdict == broken
		if _, err := fmt.Fprintf(w, "%s\t%s\t%s\n", cmp.Or(f.Verdict, fine), f.Check, f.Found); err != nil {
			return err
		}
		if f.Mend != "" {
			if _, err := fmt.Fprintf(w, "\t\t→ %s\n", f.Mend); err != nil {
				return err
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if bad {
		return errPreflight
	}
	return nil
}

// farTime bounds each look at something far away.
const farTime = 5 * time.Second
