// SPDX-License-Identifier: Apache-2.0

// Package process has what the processes of a cluster share: flags, log, certificate, registry, the
// wait for the API server, and answers to probes.
package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/config"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/etcd"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

// Options are what every process of a cluster is asked for.
type Options struct {
	access.Connection
	Health, LogLevel, LogFormat, Kubeconfig string
}

// Flags adds the flags of the options to c.
func (o *Options) Flags(c *cobra.Command) {
	o.Connection.Flags(c)
	f := c.Flags()
	f.StringVar(&o.Site, "site", "", "`NAME` of the site that this cluster is")
	f.StringVar(&o.Health, "health", "", "`ADDRESS` that answers /healthz and /readyz; empty: none")
	f.StringVar(&o.LogLevel, "log-level", "info", "`LEVEL`: debug, info, warn or error")
	f.StringVar(&o.LogFormat, "log-format", "text", "`FORM` of the log: text or json")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "`FILE` with the cluster's address, for a process outside of it")
}

// Complete completes the connection. It returns a cli.UsageError when no site is known.
func (o *Options) Complete(getenv func(string) string) error {
	site := o.Site
	if err := o.Connection.Complete(getenv); err != nil {
		return err
	}
	if o.Site = cmp.Or(site, o.Site); o.Site == "" {
		return cli.Usage("no --site: give the name of the site that this cluster is")
	}
	return nil
}

// Logger writes to the standard error. The libraries of Kubernetes log there too from now on.
func (o *Options) Logger(sh *cli.Shell) (*slog.Logger, error) {
	log, err := config.NewLogger(sh.Err, o.LogLevel, o.LogFormat)
	if err != nil {
		return nil, cli.Usage("--log-level, --log-format: %w", err)
	}
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	return log, nil
}

// Credentials loads the certificate and checks that it is of this site. They follow later changes
// of the files, which log reports.
func (o *Options) Credentials(sh *cli.Shell, log *slog.Logger) (*pki.Credentials, error) {
	creds, err := pki.LoadFiles(pki.Files{CA: o.CA, Cert: o.Cert, Key: o.Key, Log: log}, sh.Now)
	if err != nil {
		return nil, err
	}
	id := creds.Identity()
	if o.Federation != "" && o.Federation != id.Federation {
		return nil, fmt.Errorf("--federation %q: the certificate %s is of federation %q: correct one of the two", o.Federation, o.Cert,
			id.Federation)
	}
	if o.Site != id.Site {
		return nil, fmt.Errorf("--site %q: the certificate %s is of site %q: correct one of the two", o.Site, o.Cert, id.Site)
	}
	return creds, nil
}

// OpenRegistry opens the registry with the process's certificate. The caller closes it.
func (o *Options) OpenRegistry(creds *pki.Credentials, log *slog.Logger) (federation.Registry, error) {
	return etcd.Open(etcd.Config{After: time.After, Endpoints: o.Registry, Federation: creds.Identity().Federation,
		TLS: access.RegistryTLS(o.Registry, creds), Transport: access.Kept(creds), Log: log, Seal: signed.New(creds, log, nil)})
}

// OperatorLease is the name of the Lease that the operator which works holds.
const OperatorLease = "weir-operator"

// Cluster says how to reach the API server: by the file kubeconfig, or, without one, as a pod does.
func Cluster(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w: run this in a pod, or give --kubeconfig", err)
	}
	return cfg, nil
}

// ServeHealth answers probes until ctx ends: /healthz always, /readyz while ready returns nil.
func ServeHealth(ctx context.Context, address string, ready func() error) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--health %q: %w: give an address of this machine and a port that is free", address, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() }) // a probe that is under way may fail
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("--health %q: %w", address, err)
	}
	return nil
}

// Scheme has the kinds of objects that the processes read and write.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}
