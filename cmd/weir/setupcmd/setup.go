// SPDX-License-Identifier: Apache-2.0

// Package setupcmd has `weir setup`, which the chart runs in a cluster: it makes a site's keys,
// certificates and objects.
package setupcmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
	"github.com/weir-storage/weir/cmd/weir/pkicmd"
)

// Keys of the Secrets that setup makes, as gateways and etcd read them.
const (
	siteKeyFile = "site.key"
	caCert      = "ca.crt"
	caKey       = "ca.key"
)

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
	f.StringVar(&s.siteKey, "site-key", "", "`SECRET` with the site's key")
	f.StringVar(&s.objects, "objects", "", "`DIRECTORY` with objects to apply")
	f.StringVar(&s.authority, "authority", "",
		"`SECRET` with the federation's authority, made if it is not there; empty: issue nothing")
	f.DurationVar(&s.validFor, "valid-for", pkicmd.CertificateTime, "`TIME` until a certificate expires")
	f.StringArrayVar(&s.issue, "issue", nil, "`NAME=SECRET[=HOST,HOST]` of a certificate; may be repeated")
	return c
}

func (s *setup) run(ctx context.Context) error {
	for _, f := range [][2]string{
		{"namespace", s.namespace}, {"federation", s.federation}, {"organization", s.organization}, {"site", s.site}, {"site-key",
			s.siteKey},
	} {
		if f[1] == "" {
			return cli.Usage("setup: no --%s: the chart gives it", f[0])
		}
	}
	wanted, err := s.certificates()
	if err != nil {
		return err
	}
	if err := s.keepSiteKey(ctx); err != nil {
		return err
	}
	if s.authority != "" {
		a, err := s.keepAuthority(ctx)
		if err != nil {
			return err
		}
		for _, w := range wanted {
			if err := s.keepCertificate(ctx, a, w); err != nil {
				return err
			}
		}
	}
	return s.apply(ctx)
}

// secret reads a Secret. It returns nil when there is none.
func (s *setup) secret(ctx context.Context, name string) (*corev1.Secret, error) {
	var found corev1.Secret
	err := s.client.Get(ctx, kube.ObjectKey{Namespace: s.namespace, Name: name}, &found)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read secret %s/%s: %w", s.namespace, name, err)
	}
	return &found, nil
}

// createSecret creates a Secret. It fails when another run was faster. Kubernetes then runs this
// one again, and it finds the other's Secret.
func (s *setup) createSecret(ctx context.Context, name string, data map[string][]byte) error {
	err := s.client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name,
			Labels: map[string]string{"app.kubernetes.io/managed-by": "weir-setup"}},
		Data: data,
	})
	if err != nil {
		return fmt.Errorf("make secret %s/%s: %w", s.namespace, name, err)
	}
	s.tell("secret %s is made\n", name)
	return nil
}
