// SPDX-License-Identifier: Apache-2.0

package operatorcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
	"github.com/weir-storage/weir/cmd/weir/pkicmd"
	"github.com/weir-storage/weir/controllers/certificates"
	"github.com/weir-storage/weir/pki"
)

// renewal is what `weir operator` was asked to do about certificates that `weir setup` generated.
type renewal struct {
	authority string
	validFor  time.Duration
	secrets   []string
}

func (r *renewal) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&r.authority, "authority", "", "`SECRET` with the federation's authority, which renews certificates; empty: renew none")
	f.DurationVar(&r.validFor, "valid-for", pkicmd.CertificateTime, "`TIME` until a renewed certificate expires")
	f.StringArrayVar(&r.secrets, "renew", nil, "`SECRET` of a certificate that `weir setup` made; may be repeated")
}

// add has the operator that leads renew certificates before they expire, if it was asked to.
func (r *renewal) add(mgr ctrl.Manager, sh *cli.Shell, o *operator, id pki.Identity, log *slog.Logger) error {
	switch {
	case r.authority == "" && len(r.secrets) == 0:
		return nil
	case r.authority == "":
		return cli.Usage("operator: --renew without --authority: name the Secret of the authority")
	case o.namespace == "":
		return cli.Usage("operator: --authority without --namespace: name the namespace of the Secrets")
	}
	return mgr.Add(r.renewal(mgr.GetAPIReader(), mgr.GetClient(), mgr.GetEventRecorder("weir-operator"), sh, o, id, log))
}

func (r *renewal) renewal(reader client.Reader, writer client.Client, events events.EventRecorder, sh *cli.Shell, o *operator,
	id pki.Identity, log *slog.Logger) *certificates.Renewal {
	return &certificates.Renewal{
		Issuer: certificates.Issuer{
			Secrets: certificates.Secrets{Reader: reader, Client: writer, Namespace: o.namespace,
				Tell: func(format string, a ...any) { log.Debug(fmt.Sprintf(format, a...)) }},
			Federation: id.Federation, Organization: id.Organization, Site: o.Site,
			Authority: r.authority, ValidFor: r.validFor, Now: sh.Now,
		},
		Certificates: r.secrets, After: time.After, Events: events, Log: log,
	}
}

// revive is for an operator whose own certificate cannot be used, perhaps because the cluster was
// off until it had expired: nobody else would renew it. It renews once what it can, for the names
// of the command line, and returns why this process has to end. The kubelet starts it again.
func (r *renewal) revive(ctx context.Context, sh *cli.Shell, o *operator, log *slog.Logger, why error) error {
	if r.authority == "" || o.namespace == "" || o.Federation == "" || o.organization == "" {
		return why
	}
	cluster, err := process.Cluster(o.Kubeconfig)
	if err != nil {
		return errors.Join(why, err)
	}
	c, err := client.New(cluster, client.Options{})
	if err != nil {
		return errors.Join(why, err)
	}
	return r.reviveWith(ctx, c, sh, o, log, why)
}

func (r *renewal) reviveWith(ctx context.Context, c client.Client, sh *cli.Shell, o *operator, log *slog.Logger, why error) error {
	id := pki.Identity{Federation: o.Federation, Organization: o.organization, Site: o.Site}
	if err := r.renewal(c, c, silent{}, sh, o, id, log).Look(ctx); err != nil {
		return errors.Join(why, err)
	}
	return fmt.Errorf("%w; certificates in the cluster whose time is over are renewed now: the kubelet brings them here within about "+
		"a minute, and starts this process again", why)
}

// silent takes no events: what happened is in the log too.
type silent struct{}

// Eventf implements events.EventRecorder.
func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}
