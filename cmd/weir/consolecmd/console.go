// SPDX-License-Identifier: Apache-2.0

// Package consolecmd has `weir console`: the web pages of the exchange.
package consolecmd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/config"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
	"github.com/weir-storage/weir/console"
)

// serving is what `weir console` was asked for.
type serving struct {
	listen, url, kubeconfig, cert, key string
	issuer, client, secretFile         string
	scopes                             []string
	health, logLevel, logFormat        string
}

// Command is `weir console`.
func Command(sh *cli.Shell) *cobra.Command {
	s := serving{}
	c := &cobra.Command{
		Use: "console --url URL", Short: "Serve web pages to lend, borrow and look", Args: cli.Args(cobra.NoArgs),
		Long: "Serves web pages for people of a cluster: sites and volumes, offers, agreements and usage, and the\n" +
			"forms to offer, ask, accept and end. People sign in with a token of the cluster, or at an issuer of\n" +
			"OpenID Connect whose ID tokens the API server takes. The console has no rights of its own: it reads\n" +
			"and writes with theirs, and keeps nothing. Without --cert it speaks plain HTTP, for a proxy before\n" +
			"it that speaks HTTPS.",
		Example: "  weir console --url https://weir.example.org --cert tls.crt --key tls.key",
		RunE:    func(c *cobra.Command, _ []string) error { return s.run(c.Context(), sh) },
	}
	f := c.Flags()
	f.StringVar(&s.listen, "listen", ":8443", "`ADDRESS` at which it is served")
	f.StringVar(&s.url, "url", "", "`URL` at which people reach it, such as https://weir.example.org")
	f.StringVar(&s.cert, "cert", "", "`FILE` with the certificate for browsers, in PEM; it may be replaced while it runs")
	f.StringVar(&s.key, "key", "", "`FILE` with its private key")
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "`FILE` that says where the API server is; by default as for a pod")
	f.StringVar(&s.issuer, "oidc-issuer", "", "`URL` of the issuer; empty: people give a token")
	f.StringVar(&s.client, "oidc-client", "", "`NAME` of this console at the issuer")
	f.StringVar(&s.secretFile, "oidc-secret-file", "", "`FILE` with the client's secret; empty: it has none")
	f.StringSliceVar(&s.scopes, "oidc-scopes", []string{"email"}, "`SCOPES` besides openid")
	f.StringVar(&s.health, "health", "", "`ADDRESS` that answers /healthz and /readyz; empty: none")
	f.StringVar(&s.logLevel, "log-level", "info", "`LEVEL`: debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "text", "`FORM` of the log: text or json")
	return c
}

func (s *serving) oidc() (*console.OIDC, error) {
	switch {
	case s.issuer == "" && s.client == "" && s.secretFile == "":
		return nil, nil
	case s.issuer == "" || s.client == "":
		return nil, cli.Usage("--oidc-issuer %q, --oidc-client %q: give both, or none", s.issuer, s.client)
	case !strings.HasPrefix(s.issuer, "https://"):
		return nil, cli.Usage("--oidc-issuer %q: give a URL that begins with https://", s.issuer)
	}
	o := &console.OIDC{Issuer: s.issuer, Client: s.client, Scopes: s.scopes,
		HTTP: &http.Client{Timeout: 15 * time.Second}} // one that hangs keeps nobody out
	if s.secretFile != "" {
		text, err := os.ReadFile(s.secretFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-secret-file: %w", err)
		}
		o.Secret = strings.TrimSpace(string(text))
	}
	return o, nil
}

func (s *serving) run(ctx context.Context, sh *cli.Shell) error {
	log, err := config.NewLogger(sh.Err, s.logLevel, s.logFormat)
	if err != nil {
		return cli.Usage("--log-level, --log-format: %w", err)
	}
	if s.url == "" {
		return cli.Usage("--url is empty: give where people reach the console, such as https://weir.example.org")
	}
	if (s.cert == "") != (s.key == "") {
		return cli.Usage("--cert %q, --key %q: give both, or none behind a proxy that speaks HTTPS", s.cert, s.key)
	}
	o, err := s.oidc()
	if err != nil {
		return err
	}
	cluster, err := console.InCluster(sh.Getenv)
	if s.kubeconfig != "" {
		cluster, err = process.Cluster(s.kubeconfig)
	}
	if err != nil {
		return err
	}
	c, err := console.New(console.Config{Cluster: cluster, URL: s.url, OIDC: o, Now: sh.Now, Random: sh.Random, Logger: log})
	if err != nil {
		return cli.Usage("--url: %w", err)
	}
	server := &http.Server{Handler: c, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	if s.cert != "" {
		pair := &files{cert: s.cert, key: s.key}
		if _, err := pair.get(nil); err != nil {
			return fmt.Errorf("--cert, --key: %w", err)
		}
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.get}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.listen)
	if err != nil {
		return fmt.Errorf("--listen %q: %w: give an address of this machine and a port that is free", s.listen, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	probes := make(chan error, 1)
	go func() {
		var err error
		if s.health != "" {
			err = process.ServeHealth(ctx, s.health, func() error { return nil })
			cancel()
		}
		probes <- err
	}()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // a page that is under way may be cut
	defer stop()
	log.Info("console starts", "address", l.Addr().String(), "url", s.url, "apiServer", cluster.Host, "version", sh.Version)
	if server.TLSConfig != nil {
		err = server.ServeTLS(l, "", "")
	} else {
		err = server.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	cancel()
	return errors.Join(err, <-probes)
}

// files are a certificate and its key, which are read again when they are others.
type files struct {
	cert, key string

	mu   sync.Mutex
	of   time.Time
	pair *tls.Certificate
}

func (f *files) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, err := os.Stat(f.cert)
	if err == nil && f.pair != nil && i.ModTime().Equal(f.of) {
		return f.pair, nil
	}
	if err == nil {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(f.cert, f.key); err == nil {
			f.pair, f.of = &pair, i.ModTime()
			return f.pair, nil
		}
	}
	if f.pair != nil {
		return f.pair, nil // the other one is being written
	}
	return nil, err
}
