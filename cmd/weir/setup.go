// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/pki"
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

// wantedCert is an --issue.
type wantedCert struct {
	name, secret string
	hosts        []string
}

func (s *setup) certificates() ([]wantedCert, error) {
	var out []wantedCert
	for _, text := range s.issue {
		parts := strings.SplitN(text, "=", 3)
		if len(parts) < 2 || parts[0] == "" || parts[1] == "" {
			return nil, usage("setup: --issue %q: write NAME=SECRET or NAME=SECRET=HOST,HOST", text)
		}
		c := wantedCert{name: parts[0], secret: parts[1]}
		if len(parts) == 3 {
			c.hosts = strings.Split(parts[2], ",")
		}
		for _, h := range c.hosts {
			if h == "" || strings.Contains(h, "$(") {
				return nil, usage("setup: --issue %q: host %q is no address: the Service that has it was not there when this pod began; it is tried again", text, h)
			}
		}
		out = append(out, c)
	}
	if len(out) > 0 && s.authority == "" {
		return nil, usage("setup: --issue without --authority: name the Secret of the authority")
	}
	return out, nil
}

// secret reads one; nil when it is not there.
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

// make creates a Secret. Another run may have been faster: then its own is what counts, and this one fails and is run again.
func (s *setup) make(ctx context.Context, name string, data map[string][]byte) error {
	err := s.client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/managed-by": "weir-setup"}}, Data: data,
	})
	if err != nil {
		return fmt.Errorf("make secret %s/%s: %w", s.namespace, name, err)
	}
	s.tell("secret %s is made\n", name)
	return nil
}

func (s *setup) keepSiteKey(ctx context.Context) error {
	old, err := s.secret(ctx, s.siteKey)
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
		return s.make(ctx, s.siteKey, map[string][]byte{siteKeyFile: text})
	}
	if _, err := keyring.ParseSiteKey(old.Data[siteKeyFile]); err != nil {
		return fmt.Errorf("secret %s/%s, key %s: %w: put the site's key back from its copy; it is not made anew, because what is wrapped for the old one can not be read with a new one",
			s.namespace, s.siteKey, siteKeyFile, err)
	}
	return nil
}

func (s *setup) keepAuthority(ctx context.Context) (*pki.Authority, error) {
	old, err := s.secret(ctx, s.authority)
	if err != nil {
		return nil, err
	}
	if old == nil {
		a, err := pki.NewAuthority(s.federation, s.now(), authorityValidFor)
		if err != nil {
			return nil, err
		}
		p, err := a.Pair()
		if err != nil {
			return nil, err
		}
		return a, s.make(ctx, s.authority, map[string][]byte{caCert: p.Cert, caKey: p.Key})
	}
	a, err := pki.ParseAuthority(pki.Pair{Cert: old.Data[caCert], Key: old.Data[caKey]})
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w: put the federation's ca.crt and ca.key there, or give certificates that were issued elsewhere", s.namespace, s.authority, err)
	}
	if a.Federation() != s.federation {
		return nil, fmt.Errorf("secret %s/%s: it is the authority of federation %q, and --federation is %q: correct one of the two", s.namespace, s.authority, a.Federation(), s.federation)
	}
	return a, nil
}

// keepCertificate issues a certificate that is missing, lacks a host, is of another authority, or ends soon.
func (s *setup) keepCertificate(ctx context.Context, a *pki.Authority, w wantedCert) error {
	old, err := s.secret(ctx, w.secret)
	if err != nil {
		return err
	}
	ca, err := a.Pair()
	if err != nil {
		return err
	}
	id := pki.Identity{Federation: s.federation, Organization: s.organization, Site: s.site, Gateway: w.name}
	if old != nil && bytes.Equal(old.Data[caCert], ca.Cert) && s.good(old.Data[corev1.TLSCertKey], ca.Cert, id, w.hosts) {
		return nil
	}
	p, err := a.Issue(id, w.hosts, s.now(), s.validFor)
	if err != nil {
		return fmt.Errorf("issue certificate %s: %w", w.name, err)
	}
	data := map[string][]byte{caCert: ca.Cert, corev1.TLSCertKey: p.Cert, corev1.TLSPrivateKeyKey: p.Key}
	if old == nil {
		return s.make(ctx, w.secret, data)
	}
	old.Data = data
	if err := s.client.Update(ctx, old); err != nil {
		return fmt.Errorf("renew secret %s/%s: %w", s.namespace, w.secret, err)
	}
	s.tell("secret %s is renewed\n", w.secret)
	return nil
}

// good tells whether a certificate will do.
func (s *setup) good(cert, ca []byte, id pki.Identity, hosts []string) bool {
	block, _ := pem.Decode(cert)
	roots := x509.NewCertPool()
	if block == nil || !roots.AppendCertsFromPEM(ca) {
		return false
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return false
	}
	if _, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: s.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return false
	}
	whole, left := c.NotAfter.Sub(c.NotBefore), c.NotAfter.Sub(s.now())
	return left >= whole/3 && len(c.URIs) == 1 && c.URIs[0].String() == id.String() &&
		!slices.ContainsFunc(hosts, func(h string) bool { return c.VerifyHostname(h) != nil })
}

// applyPause is between attempts to apply an object whose kind the API server does not serve yet.
const (
	applyPause = 2 * time.Second
	applyTries = 30
)

// apply applies the site's own objects. Their kinds come with the same release, and are served a little later.
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
