// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/controllers/certificates"
	"github.com/weir-storage/weir/federation/keyring"
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

func (sh *shell) setupCommand() *cobra.Command {
	s := &setup{now: sh.now, tell: sh.tell, pause: pause}
	c := &cobra.Command{
		Use: "setup --namespace NAMESPACE --site SITE", Short: "Make the keys, certificates and objects of a site in its cluster", Args: args(cobra.NoArgs),
		Long: "Runs once with each install and upgrade of the chart. Makes what is missing: the site's key, for trials an authority and certificates, the site's own objects. " +
			"A key that is there is never changed. A certificate is issued anew when a host is missing in it, or in the last third of its time.",
		RunE: func(c *cobra.Command, _ []string) error {
			p := process{kubeconfig: s.kubeconfig}
			cfg, err := p.cluster()
			if err != nil {
				return err
			}
			if s.client, err = kube.New(cfg, kube.Options{Scheme: scheme()}); err != nil {
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
	f.StringVar(&s.authority, "authority", "", "`SECRET` with the federation's authority, made if it is not there; empty: issue nothing")
	f.DurationVar(&s.validFor, "valid-for", validFor, "`TIME` until a certificate expires")
	f.StringArrayVar(&s.issue, "issue", nil, "`NAME=SECRET[=HOST,HOST]` of a certificate; may be repeated")
	return c
}

func (s *setup) run(ctx context.Context) error {
	for _, f := range [][2]string{{"namespace", s.namespace}, {"federation", s.federation}, {"organization", s.organization}, {"site", s.site}, {"site-key", s.siteKey}} {
		if f[1] == "" {
			return usage("setup: no --%s: the chart gives it", f[0])
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
		if err := s.issuer().Ensure(ctx, wanted, authorityValidFor); err != nil {
			return err
		}
	}
	return s.apply(ctx)
}

func (s *setup) certificates() ([]certificates.Wanted, error) {
	var out []certificates.Wanted
	for _, text := range s.issue {
		w, err := certificates.ParseWanted(text)
		if err != nil {
			return nil, usage("setup: %w", err)
		}
		out = append(out, w)
	}
	if len(out) > 0 && s.authority == "" {
		return nil, usage("setup: --issue without --authority: name the Secret of the authority")
	}
	return out, nil
}

func (s *setup) secrets() *certificates.Secrets {
	return &certificates.Secrets{Reader: s.client, Client: s.client, Namespace: s.namespace, Tell: s.tell}
}

func (s *setup) issuer() *certificates.Issuer {
	return &certificates.Issuer{Secrets: *s.secrets(), Federation: s.federation, Organization: s.organization, Site: s.site,
		Authority: s.authority, ValidFor: s.validFor, Now: s.now}
}

func (s *setup) keepSiteKey(ctx context.Context) error {
	old, err := s.secrets().Get(ctx, s.siteKey)
	if err != nil {
		return err
	}
	if old == nil {
		k, err := keyring.NewSiteKey()
		if err != nil {
			return err
		}
		text, err := k.Bytes()
		if err != nil {
			return err
		}
		return s.secrets().Make(ctx, s.siteKey, map[string][]byte{siteKeyFile: text})
	}
	if _, err := keyring.ParseSiteKey(old.Data[siteKeyFile]); err != nil {
		return fmt.Errorf("secret %s/%s, key %s: %w: put the site's key back from its copy; it is not made anew, because what is wrapped for the old one can not be read with a new one",
			s.namespace, s.siteKey, siteKeyFile, err)
	}
	return nil
}

// applyPause is between attempts to apply an object whose kind the API server does not serve yet.
const (
	applyPause = 2 * time.Second
	applyTries = 30
)

// apply applies the site's own objects. Their kinds come with the same release, and are served a
// little later.
func (s *setup) apply(ctx context.Context) error {
	if s.objects == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(s.objects, "*.yaml"))
	if err != nil || len(files) == 0 {
		return usage("setup: --objects %q: there is no .yaml file in it", s.objects)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = s.applyAll(ctx, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (s *setup) applyAll(ctx context.Context, r io.Reader) error {
	d := yaml.NewYAMLOrJSONDecoder(r, 4096)
	for {
		o := new(unstructured.Unstructured)
		if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(o.Object) == 0 {
			continue
		}
		for try := 1; ; try++ {
			err := s.client.Apply(ctx, kube.ApplyConfigurationFromUnstructured(o.DeepCopy()), kube.FieldOwner("weir-setup"), kube.ForceOwnership)
			if err == nil {
				s.tell("%s %s is applied\n", o.GetKind(), o.GetName())
				break
			}
			if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) || try == applyTries {
				return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
			}
			if !s.pause(ctx, applyPause) {
				return ctx.Err()
			}
		}
	}
}
