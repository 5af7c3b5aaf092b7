// SPDX-License-Identifier: Apache-2.0

package main

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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/etcd"
	"github.com/weir-storage/weir/pki"
)

// service is what processes in a cluster have in common.
type process struct {
	connection
	health, logLevel, kubeconfig string
}

func (s *process) flags(c *cobra.Command) {
	s.connection.flags(c)
	f := c.Flags()
	f.StringVar(&s.site, "site", "", "`NAME` of the site that this cluster is")
	f.StringVar(&s.health, "health", "", "`ADDRESS` that answers /healthz and /readyz; empty: none")
	f.StringVar(&s.logLevel, "log-level", "info", "`LEVEL`: debug, info, warn or error")
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "`FILE` with the cluster's address, for a process outside of it")
}

// complete is connection's, and wants a site.
func (s *process) complete(getenv func(string) string) error {
	site := s.site
	if err := s.connection.complete(getenv); err != nil {
		return err
	}
	if s.site = cmp.Or(site, s.site); s.site == "" {
		return usage("no --site: give the name of the site that this cluster is")
	}
	return nil
}

// logger writes to the standard error, also what Kubernetes' libraries say.
func (s *process) logger(sh *shell) (*slog.Logger, error) {
	level, err := (&Config{LogLevel: s.logLevel}).level()
	if err != nil {
		return nil, usage("--log-level: %w", err)
	}
	h := slog.NewTextHandler(sh.err, &slog.HandlerOptions{Level: level})
	ctrl.SetLogger(logr.FromSlogHandler(h))
	return slog.New(h), nil
}

// cluster is how to reach the API server: --kubeconfig, or from within a pod.
func (s *process) cluster() (*rest.Config, error) {
	if s.kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	}
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w: run this in a pod, or give --kubeconfig", err)
	}
	return cfg, nil
}

// credentials loads the certificate, which must be of the site that the process is told it is at. log hears of later changes of the files.
func (s *process) credentials(sh *shell, log *slog.Logger) (*pki.Credentials, error) {
	creds, err := pki.LoadFiles(pki.Files{CA: s.ca, Cert: s.cert, Key: s.key, Log: log}, sh.now)
	if err != nil {
		return nil, err
	}
	id := creds.Identity()
	if s.federation != "" && s.federation != id.Federation {
		return nil, fmt.Errorf("--federation %q: the certificate %s is of federation %q: correct one of the two", s.federation, s.cert, id.Federation)
	}
	if s.site != id.Site {
		return nil, fmt.Errorf("--site %q: the certificate %s is of site %q: correct one of the two", s.site, s.cert, id.Site)
	}
	return creds, nil
}

func (s *process) registry(creds *pki.Credentials, log *slog.Logger) (federation.Registry, error) {
	return etcd.Open(etcd.Config{After: time.After, Endpoints: s.connection.registry, Federation: creds.Identity().Federation, TLS: registryTLS(s.connection.registry, creds), Log: log})
}

// serveHealth answers /healthz, and /readyz while ready says so, until ctx ends.
func serveHealth(ctx context.Context, address string, ready func() error) error {
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
	stop := context.AfterFunc(ctx, func() { _ = s.Close() }) // probes may be cut off
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("--health %q: %w", address, err)
	}
	return nil
}
