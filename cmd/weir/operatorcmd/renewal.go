// SPDX-License-Identifier: Apache-2.0

package operatorcmd

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
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
	return mgr.Add(&certificates.Renewal{
		Issuer: certificates.Issuer{
			Secrets: certificates.Secrets{Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Namespace: o.namespace,
				Tell: func(format string, a ...any) { log.Debug(fmt.Sprintf(format, a...)) }},
			Federation: id.Federation, Organization: id.Organization, Site: o.Site,
			Authority: r.authority, ValidFor: r.validFor, Now: sh.Now,
		},
		Certificates: r.secrets, After: time.After,
		Events: mgr.GetEventRecorder("weir-operator"), Log: log,
	})
}
