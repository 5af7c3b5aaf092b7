// SPDX-License-Identifier: Apache-2.0

// Package preflightcmd has `weir preflight`: check a machine, a cluster and what they reach.
package preflightcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/config"
)

// verdict is the result of a check. The zero verdict means ok.
type verdict string

const (
	fine   verdict = "ok"
	doubt  verdict = "warn" // an install works, and somebody should know
	broken verdict = "FAIL" // an install does not work
)

// finding is what one check found. Mend says what to do, if there is anything to do.
type finding struct {
	Check   string
	Verdict verdict
	Found   string
	Mend    string
}

// preflight is what `weir preflight` was asked for.
type preflight struct {
	sh         *cli.Shell
	connect    access.Connector
	config     string // path
	kubeconfig string
	namespace  string
	node, far  bool
	nfsTLS     bool
	machine    machine
}

// Command is `weir preflight`.
func Command(sh *cli.Shell, connect access.Connector) *cobra.Command {
	p := &preflight{sh: sh, connect: connect, machine: thisMachine()}
	var noNode, noFar bool
	c := &cobra.Command{
		Use:   "preflight [--config FILE] [--kubeconfig FILE]",
		Short: "Check a machine, a cluster and what they reach, before an install", Args: cli.Args(cobra.NoArgs),
		Long: "Checks what an install needs, and says what to mend. On each node: the kernel's NFS client, the\n" +
			"clock, ports. With --config, a gateway's configuration file: certificate, registry, store, the\n" +
			"gateways of other sites. With --kubeconfig: the cluster, and images that it can not pull. The\n" +
			"command changes nothing. Exit code 1: an install would not work.",
		Example: "  weir preflight --config /etc/weir/weir.yaml\n  weir preflight --no-node --kubeconfig ~/.kube/config",
		RunE: func(c *cobra.Command, _ []string) error {
			p.node, p.far = !noNode, !noFar
			return p.run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&p.config, "config", sh.Getenv("WEIR_CONFIG"), "a gateway's configuration `FILE` [WEIR_CONFIG]")
	f.StringVar(&p.kubeconfig, "kubeconfig", sh.Getenv("KUBECONFIG"), "`FILE` with the cluster's address [KUBECONFIG]")
	f.StringVar(&p.namespace, "namespace", defaultNamespace, "`NAMESPACE` in which the chart is installed, for --kubeconfig")
	f.BoolVar(&noNode, "no-node", false, "do not check this machine: it is no node of the cluster")
	f.BoolVar(&p.nfsTLS, "nfs-tls", false, "check also what this node needs to mount over TLS (csi.node.tls of the chart)")
	f.BoolVar(&noFar, "no-far", false, "do not check registry, store and other sites")
	return c
}

func (p *preflight) run(ctx context.Context) error {
	var cfg *config.Config
	if p.config != "" {
		c, err := config.Read(p.config)
		if err != nil {
			return err
		}
		c.SetDefaults()
		cfg = &c
	}
	if cfg == nil && !p.node && !p.nfsTLS && p.kubeconfig == "" {
		return cli.Usage("preflight: nothing to check: give --config, --kubeconfig, or leave --no-node out")
	}
	var found []finding
	if p.node {
		found = append(found, p.machine.check(ctx, cfg)...)
	}
	if p.nfsTLS {
		found = append(found, p.machine.nfsTLS(p.sh.Now())...)
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
	w := tabwriter.NewWriter(p.sh.Out, 0, 8, 2, ' ', 0)
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

// farTime bounds the time of each check that goes over the network.
const farTime = 5 * time.Second
