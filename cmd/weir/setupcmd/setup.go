// SPDX-License-Identifier: Apache-2.0

// Package setupcmd has `weir setup`, which the chart runs in a cluster: it makes a site's keys,
// certificates and objects.
package setupcmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
	"github.com/weir-storage/weir/cmd/weir/pkicmd"
)

// siteKeyFile is the key of the site's Secret under which gateways read it.
const siteKeyFile = "site.key"

// setup is what `weir setup` was asked for.
type setup struct {
	kubeconfig, namespace          string
	federation, organization, site string
	siteKey, objects, authority    string
	validFor                       time.Duration
	issue                          []string
	client                         kube.Client
	now                            func() time.Time
	tell                           func(format string, a ...any)
	pause                          func(context.Context, time.Duration) bool
}

// Command is `weir setup`.
func Command(sh *cli.Shell) *cobra.Command {
	s := &setup{now: sh.Now, tell: sh.Tell, pause: sh.Pause}
	c := &cobra.Command{
		Use:   "setup --namespace NAMESPACE --site SITE",
		Short: "Make the keys, certificates and objects of a site in its cluster", Args: cli.Args(cobra.NoArgs),
		Long: "Runs once with each install and upgrade of the chart. Makes what is missing: the site's key, the\n" +
			"site's own objects, and, for trials, an authority and certificates. It never changes a key. It\n" +
			"issues a certificate again when a host is missing in it, and in the last third of its time.",
		Example: "  weir setup --namespace weir-system --federation demo --organization SURF --site ams \\\n" +
			"    --site-key weir-site-key --objects /etc/weir/objects",
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := process.Cluster(s.kubeconfig)
			if err != nil {
				return err
			}
			if s.client, err = kube.New(cfg, kube.Options{Scheme: process.Scheme()}); err != nil {
				return err
			}
			return s.run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "`FILE` with the cluster's address, for a process outside of it")
	f.StringVar(&s.namespace, "namespace", "", "`NAMESPACE` of the Secrets")
	f.StringVar(&s.federation, "federation", "", "federation's `NAME`")
	f.StringVar(&s.organization, "organization", "", "organization's `NAME`")
	f.StringVar(&s.site, "site", "", "site's `NAME`")
	f.StringVar(&s.siteKey, "site-key", "", "`SECRET` with the site's key; empty: the gateway makes one, for its KMS")
	f.StringVar(&s.objects, "objects", "", "`DIRECTORY` with objects to apply")
	f.StringVar(&s.authority, "authority", "",
		"`SECRET` with the federation's authority, made if it is not there; empty: issue nothing")
	f.DurationVar(&s.validFor, "valid-for", pkicmd.CertificateTime, "`TIME` until a certificate expires")
	f.StringArrayVar(&s.issue, "issue", nil, "`PART/NAME=SECRET[=HOST,HOST]` of a certificate; may be repeated")
	return c
}

func (s *setup) run(ctx context.Context) error {
	for _, f := range [][2]string{
		{"namespace", s.namespace}, {"federation", s.federation}, {"organization", s.organization}, {"site", s.site},
	} {
		if f[1] == "" {
			return cli.Usage("setup: no --%s: the chart gives it", f[0])
		}
	}
	wanted, err := s.certificates()
	if err != nil {
		return err
	}
	if s.siteKey != "" {
		if err := s.keepSiteKey(ctx); err != nil {
			return err
		}
	}
	if s.authority != "" {
		if err := s.issuer().Ensure(ctx, wanted, pkicmd.AuthorityTime); err != nil {
			return err
		}
	}
	return s.apply(ctx)
}
