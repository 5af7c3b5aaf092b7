// SPDX-License-Identifier: Apache-2.0

// Package csicmd has `weir csi`, the processes of the CSI driver: the controller and the node part.
//
// The functions runController and runNode are their wiring. Package csi-driver knows neither the
// registry nor the gateways: csi_ports.go connects it with them.
package csicmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
	csidriver "github.com/weir-storage/weir/csi-driver"
	"github.com/weir-storage/weir/metrics"
)

// part is what `weir csi controller` and `weir csi node` were asked for.
type part struct {
	process.Options
	endpoint, gateway, metrics string

	node, registrationSocket, kubeletDir, identifier string
	nfsPort                                          uint16
	nconnect                                         int
	tlsName                                          string
}

// Command is `weir csi`.
func Command(sh *cli.Shell) *cobra.Command {
	return cli.Group(&cobra.Command{Use: "csi", Short: "Run a part of the CSI driver"}, controllerCommand(sh), nodeCommand(sh))
}

// Flags adds the flags of both parts to c.
func (p *part) Flags(c *cobra.Command) {
	p.Options.Flags(c)
	f := c.Flags()
	f.StringVar(&p.endpoint, "endpoint", "unix:///csi/csi.sock", "`SOCKET` of the CSI server")
	f.StringVar(&p.metrics, "metrics", "", "`ADDRESS` of the metrics; empty: none")
	f.StringVar(&p.gateway, "gateway", "", "`HOST:PORT` of the Service of the site's gateway")
}

// api makes a client that reads from the API server, without a cache. The server limits how much it
// is asked, not the client.
func (p *part) api(ctx context.Context, sh *cli.Shell, log *slog.Logger) (*rest.Config, kube.WithWatch, error) {
	cfg, err := p.AwaitCluster(ctx, sh, log)
	if err != nil {
		return nil, nil, err
	}
	cfg.QPS = -1
	c, err := kube.NewWithWatch(cfg, kube.Options{Scheme: process.Scheme()})
	return cfg, c, err
}

// clusterUID identifies the cluster.
func clusterUID(ctx context.Context, c kube.Reader) (string, error) {
	var system corev1.Namespace
	if err := c.Get(ctx, kube.ObjectKey{Name: metav1.NamespaceSystem}, &system); err != nil {
		return "", fmt.Errorf("read namespace %s, whose UID is the cluster's: %w", metav1.NamespaceSystem, err)
	}
	return string(system.UID), nil
}

// serve serves CSI and answers probes, and runs the functions in also. The first of them that ends
// makes all others end.
func (p *part) serve(ctx context.Context, sh *cli.Shell, log *slog.Logger, m process.Metrics, register func(grpc.ServiceRegistrar),
	also ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	calls := metrics.CSICallSeconds.NewHistogram()
	all := process.NewRegistry()
	if err := process.Describe(all, "csi", sh.Version, cmp.Or(p.node, "controller"), m.Credentials, calls); err != nil {
		return err
	}
	m.Address, m.From = p.metrics, all
	observe := func(method string) func(error) {
		began := sh.Now()
		return func(err error) {
			calls.WithLabelValues(method, status.Code(err).String()).Observe(sh.Now().Sub(began).Seconds())
		}
	}
	var up atomic.Bool
	parts := append([]func(context.Context) error{func(ctx context.Context) error {
		cfg := csidriver.ServerConfig{Endpoint: p.endpoint, Log: log, After: time.After, Observe: observe}
		return csidriver.Serve(ctx, cfg, func(s grpc.ServiceRegistrar) {
			register(s)
			up.Store(true)
		})
	}}, also...)
	if p.metrics != "" {
		parts = append(parts, func(ctx context.Context) error {
			m.Keep(ctx, sh.Pause, log)
			<-ctx.Done() // the first part that ends makes all others end
			return nil
		})
	}
	if p.Health != "" {
		parts = append(parts, func(ctx context.Context) error {
			return process.ServeHealth(ctx, p.Health, func() error {
				if !up.Load() {
					return errors.New("the CSI server is not up yet")
				}
				return nil
			})
		})
	}
	ended := make(chan error, len(parts))
	for _, run := range parts {
		go func() { ended <- run(ctx) }()
	}
	var err error
	for range parts {
		err = errors.Join(err, <-ended)
		cancel()
	}
	return err
}
