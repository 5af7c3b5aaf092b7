// SPDX-License-Identifier: Apache-2.0

package csicmd

import (
	"context"
	"errors"
	"fmt"

	csicontroller "github.com/weir-storage/weir/csi-driver/controller"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
	csidriver "github.com/weir-storage/weir/csi-driver"
)

func controllerCommand(sh *cli.Shell) *cobra.Command {
	p := new(part)
	c := &cobra.Command{
		Use: "controller --site SITE", Short: "Serve CSI's controller", Args: cli.Args(cobra.NoArgs),
		Long: "Serves the controller part of the CSI driver to its sidecars: makes and changes volumes, and lets\n" +
			"nodes use them.",
		Example: "  weir csi controller --config /etc/weir/csi.yaml --site ams",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := p.Complete(sh.Getenv); err != nil {
				return err
			}
			return runController(c.Context(), sh, p)
		},
	}
	p.Flags(c)
	return c
}

func runController(ctx context.Context, sh *cli.Shell, p *part) (err error) {
	log, err := p.Logger(sh)
	if err != nil {
		return err
	}
	creds, err := p.Credentials(sh, log)
	if err != nil {
		return err
	}
	cluster, c, err := p.api(ctx, sh, log)
	if err != nil {
		return err
	}
	seen, err := cache.New(cluster, cache.Options{Scheme: process.Scheme(), DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return fmt.Errorf("cache objects of the cluster: %w", err)
	}
	uid, err := clusterUID(ctx, c)
	if err != nil {
		return err
	}
	registry, err := p.OpenRegistry(creds, log)
	if err != nil {
		return err
	}
	nodes := &nodeClients{creds: creds}
	defer func() { err = errors.Join(err, nodes.Close(), registry.Close()) }()
	controller, err := csicontroller.NewServer(csicontroller.Config{
		Client: c, Seen: seen, Federation: creds.Identity().Federation, Site: p.Site, Cluster: uid,
		Attachments: &attachments{registry: registry, site: p.Site, now: sh.Now, node: nodes.of},
	})
	if err != nil {
		return err
	}
	log.Info("CSI controller starts", "driver", v1alpha1.Driver, "site", p.Site, "endpoint", p.endpoint, "version", sh.Version)
	return p.serve(ctx, sh, log, process.Metrics{Credentials: creds, Cluster: cluster}, func(s grpc.ServiceRegistrar) {
		csi.RegisterIdentityServer(s, csidriver.NewIdentity(sh.Version, nil))
		csi.RegisterControllerServer(s, controller)
		csi.RegisterGroupControllerServer(s, controller)
	}, seen.Start)
}
