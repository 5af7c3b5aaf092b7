// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers"
)

// operator is what `weir operator` was asked for.
type operator struct {
	process
	organization, namespace, metrics string
	elect                            bool
	renewal                          renewal
}

func (sh *shell) operatorCommand() *cobra.Command {
	o := new(operator)
	c := &cobra.Command{
		Use: "operator --site SITE", Short: "Run a cluster's operator", Args: args(cobra.NoArgs),
		Long: "Runs the operator of a cluster that is a site: it makes volumes of GeoVolumes, chooses sites for copies, and shows what the registry says. Several may run; one leads.",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.complete(sh.getenv); err != nil {
				return err
			}
			return sh.runOperator(c.Context(), o)
		},
	}
	o.flags(c)
	f := c.Flags()
	f.StringVar(&o.organization, "organization", "", "`NAME` of the site's organization, by default the certificate's")
	f.StringVar(&o.namespace, "namespace", "", "`NAMESPACE` of the operator's own objects, by default the pod's")
	f.StringVar(&o.metrics, "metrics", "", "`ADDRESS` of the metrics; empty: none")
	o.renewal.flags(c)
	f.BoolVar(&o.elect, "leader-elect", false, "let one of several operators lead")
	return c
}

// scheme has the kinds that the cluster's processes read and write.
func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}

func (sh *shell) runOperator(ctx context.Context, o *operator) (err error) {
	log, err := o.logger(sh)
	if err != nil {
		return err
	}
	creds, err := o.credentials(sh, log)
	if err != nil {
		return err
	}
	id := creds.Identity()
	if o.organization != "" && o.organization != id.Organization {
		return fmt.Errorf("--organization %q: the certificate %s is of organization %q: correct one of the two", o.organization, o.cert, id.Organization)
	}
	cluster, err := o.awaitCluster(ctx, log)
	if err != nil {
		return err
	}
	registry, err := o.registry(creds, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, registry.Close()) }()
	metrics := o.metrics
	if metrics == "" {
		metrics = "0" // none
	}
	cluster.QPS = -1 // no limit, as controllers.Setup demands
	mgr, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme: scheme(), Cache: controllers.CacheOptions(), Metrics: server.Options{BindAddress: metrics}, HealthProbeBindAddress: o.health,
		LeaderElection: o.elect, LeaderElectionID: "weir-operator", LeaderElectionNamespace: o.namespace, LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("start the operator: %w", err)
	}
	alive := func(*http.Request) error { return nil }
	if err := errors.Join(mgr.AddHealthzCheck("alive", alive), mgr.AddReadyzCheck("alive", alive)); err != nil {
		return err
	}
	if err := controllers.Setup(ctx, mgr, controllers.Options{
		Federation: id.Federation, Organization: id.Organization, Site: o.site, Registry: registry, Random: sh.random, Now: sh.now, After: time.After,
	}); err != nil {
		return err
	}
	if err := o.renewal.add(mgr, sh, o, id, log); err != nil {
		return err
	}
	log.Info("operator starts", "federation", id.Federation, "organization", id.Organization, "site", o.site, "version", versionOf())
	return mgr.Start(ctx)
}
