// SPDX-License-Identifier: Apache-2.0

// Package operatorcmd has `weir operator`, the process that reconciles the API objects of a
// cluster. The function run is its wiring.
package operatorcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
	"github.com/weir-storage/weir/controllers"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

// operator is what `weir operator` was asked for.
type operator struct {
	process.Options
	organization, namespace, metrics string
	lentStore                        string
	elect                            bool
	trash                            time.Duration
	renewal                          renewal
}

// Command is `weir operator`.
func Command(sh *cli.Shell) *cobra.Command {
	o := new(operator)
	c := &cobra.Command{
		Use: "operator --site SITE", Short: "Run a cluster's operator", Args: cli.Args(cobra.NoArgs),
		Long: "Runs the operator of a site's cluster: it makes the volumes that GeoVolumes describe, chooses\n" +
			"sites for their copies, and shows the state of the registry. Several operators may run, and one\n" +
			"leads.",
		Example: "  weir operator --config /etc/weir/operator.yaml --site ams --leader-elect",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Complete(sh.Getenv); err != nil {
				return err
			}
			return run(c.Context(), sh, o)
		},
	}
	o.Flags(c)
	f := c.Flags()
	f.StringVar(&o.organization, "organization", "", "`NAME` of the site's organization, by default the certificate's")
	f.StringVar(&o.namespace, "namespace", "", "`NAMESPACE` of the operator's own objects, by default the pod's")
	f.StringVar(&o.metrics, "metrics", "", "`ADDRESS` of the metrics; empty: none")
	f.StringVar(&o.lentStore, "lent-store", "", "`URL` of this site's `weir store`, for agreements; empty: it has none")
	o.renewal.flags(c)
	f.DurationVar(&o.trash, "trash", 0, "how long deleted volumes of this cluster keep their data and names; 0: a week")
	f.BoolVar(&o.elect, "leader-elect", false, "let one of several operators lead")
	return c
}

func run(ctx context.Context, sh *cli.Shell, o *operator) (err error) {
	log, err := o.Logger(sh)
	if err != nil {
		return err
	}
	creds, err := o.Credentials(sh, log)
	if err != nil {
		return o.renewal.revive(ctx, sh, o, log, err)
	}
	id := creds.Identity()
	if o.organization != "" && o.organization != id.Organization {
		return fmt.Errorf("--organization %q: the certificate %s is of organization %q: correct one of the two",
			o.organization, o.Cert, id.Organization)
	}
	cluster, err := o.AwaitCluster(ctx, sh, log)
	if err != nil {
		return err
	}
	registry, err := o.OpenRegistry(creds, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, registry.Close()) }()
	name, err := candidate(sh.Getenv)
	if err != nil {
		return err
	}
	answers, err := process.Answers(cluster)
	if err != nil {
		return err
	}
	w := watched{answers: answers, pause: sh.Pause, anew: func() error { return execute(name) }, log: log}
	return w.run(ctx, func() error { return o.operate(ctx, sh, cluster, creds, registry, name, log) })
}

// operate is the operator, until ctx ends. It asks for the lease by the name candidate.
func (o *operator) operate(ctx context.Context, sh *cli.Shell, cluster *rest.Config, creds *pki.Credentials, registry federation.Registry,
	candidate string, log *slog.Logger) error {
	cluster = rest.CopyConfig(cluster)
	cluster.QPS = -1 // no limit, as controllers.Setup demands
	lock, err := o.lock(cluster, candidate)
	if err != nil {
		return err
	}
	id := creds.Identity()
	mgr, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme: process.Scheme(), Cache: controllers.CacheOptions(),
		Metrics:                server.Options{BindAddress: "0"}, // none: showMetrics does it
		HealthProbeBindAddress: o.Health,
		LeaderElection:         o.elect, LeaderElectionID: process.OperatorLease, LeaderElectionNamespace: o.namespace,
		LeaderElectionResourceLockInterface: lock, RenewDeadline: new(renewTime),
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("start the operator: %w", err)
	}
	alive := func(*http.Request) error { return nil }
	if err := errors.Join(mgr.AddHealthzCheck("alive", alive), mgr.AddReadyzCheck("alive", alive)); err != nil {
		return err
	}
	if err := controllers.Setup(ctx, mgr, controllers.Options{
		Federation: id.Federation, Organization: id.Organization, Site: o.Site, By: id.String(), LentStore: o.lentStore,
		Registry: registry, Random: sh.Random, Now: sh.Now,
		After: time.After, Trash: o.trash, Charter: creds,
		Signed: func(name string, value []byte) error {
			return signed.New(creds, nil, nil).Strict(string(federation.KindPaper)+"/"+name, value, signed.Known{First: true}, nil)
		}, AskPool: asker(&access.Client{Registry: registry, Self: id,
			Dial: access.Dialer(creds)}),
	}); err != nil {
		return err
	}
	if err := o.showMetrics(sh, mgr, creds, log); err != nil {
		return err
	}
	if err := o.renewal.add(mgr, sh, o, id, log); err != nil {
		return err
	}
	log.Info("operator starts", "federation", id.Federation, "organization", id.Organization, "site", o.Site, "version", sh.Version)
	return mgr.Start(ctx)
}

// showMetrics shows what the operator and controller-runtime measure, whether this operator leads
// or not.
func (o *operator) showMetrics(sh *cli.Shell, mgr ctrl.Manager, creds *pki.Credentials, log *slog.Logger) error {
	err := process.Describe(ctrlmetrics.Registry, "operator", sh.Version, creds.Identity().Gateway, creds,
		controllers.NewCollector(mgr.GetClient()))
	if err != nil {
		return err
	}
	shown := process.Metrics{Address: o.metrics, Credentials: creds, Cluster: mgr.GetConfig(), From: ctrlmetrics.Registry}
	if o.metrics == "" {
		return nil
	}
	return mgr.Add(always(func(ctx context.Context) error {
		shown.Keep(ctx, sh.Pause, log)
		return nil
	}))
}

// always runs at every operator, not only at the one that leads.
type always func(context.Context) error

// Start implements manager.Runnable.
func (a always) Start(ctx context.Context) error { return a(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (always) NeedLeaderElection() bool { return false }
