// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	csidriver "github.com/weir-storage/weir/csi-driver"
	csicontroller "github.com/weir-storage/weir/csi-driver/controller"
	"github.com/weir-storage/weir/csi-driver/mount"
	csinode "github.com/weir-storage/weir/csi-driver/node"
	"github.com/weir-storage/weir/gateway/node/nodepb"
	"github.com/weir-storage/weir/pki"
)

// csiProcess is what `weir csi controller` and `weir csi node` were asked for.
type csiProcess struct {
	process
	endpoint, gateway string

	node, registrationSocket, kubeletDir, identifier string
	nfsPort                                          uint16
	nconnect                                         int
}

func (sh *shell) csiCommand() *cobra.Command {
	c := &cobra.Command{Use: "csi", Short: "Run a part of the CSI driver"}
	group(c)
	c.AddCommand(sh.csiController(), sh.csiNode())
	return c
}

func (p *csiProcess) flags(c *cobra.Command) {
	p.process.flags(c)
	f := c.Flags()
	f.StringVar(&p.endpoint, "endpoint", "unix:///csi/csi.sock", "`SOCKET` of the CSI server")
	f.StringVar(&p.gateway, "gateway", "", "`HOST:PORT` of the Service of the site's gateway")
}

func (sh *shell) csiController() *cobra.Command {
	p := new(csiProcess)
	c := &cobra.Command{
		Use: "controller --site SITE", Short: "Serve CSI's controller", Args: args(cobra.NoArgs),
		Long: "Serves the controller part of the CSI driver, for its sidecars: makes and changes volumes, and lets nodes use them.",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := p.complete(sh.getenv); err != nil {
				return err
			}
			return sh.runCSIController(c.Context(), p)
		},
	}
	p.flags(c)
	return c
}

func (sh *shell) csiNode() *cobra.Command {
	p := new(csiProcess)
	c := &cobra.Command{
		Use: "node --site SITE --node NODE --gateway HOST:PORT", Short: "Serve CSI's node part", Args: args(cobra.NoArgs),
		Long: "Serves the node part of the CSI driver to the kubelet of this node: mounts volumes with the kernel's NFS client from the site's gateway.",
		RunE: func(c *cobra.Command, _ []string) error {
			p.noRegistry = true
			if err := p.complete(sh.getenv); err != nil {
				return err
			}
			if p.node == "" {
				return usage("csi node: no --node: give the name of the Node object that this is")
			}
			return sh.runCSINode(c.Context(), p)
		},
	}
	p.flags(c)
	f := c.Flags()
	f.StringVar(&p.node, "node", "", "`NAME` of the Node object")
	f.StringVar(&p.registrationSocket, "registration-socket", csidriver.RegistrationSocket, "`SOCKET` where the kubelet looks for the driver")
	f.StringVar(&p.kubeletDir, "kubelet-dir", "/var/lib/kubelet", "the kubelet's `DIRECTORY`")
	f.StringVar(&p.identifier, "identifier", "/sys/fs/nfs/net/nfs_client/identifier", "`FILE` with the identity of the kernel's NFS client")
	f.Uint16Var(&p.nfsPort, "nfs-port", 2049, "`PORT` of NFS at the Service")
	f.IntVar(&p.nconnect, "nconnect", 0, "`NUMBER` of connections of a mount; 0: the kernel's default")
	return c
}

// api reads from the API server itself.
func (p *csiProcess) api(ctx context.Context, log *slog.Logger) (kube.WithWatch, error) {
	cfg, err := p.awaitCluster(ctx, log)
	if err != nil {
		return nil, err
	}
	return kube.NewWithWatch(cfg, kube.Options{Scheme: scheme()})
}

func clusterUID(ctx context.Context, c kube.Reader) (string, error) {
	var system corev1.Namespace
	if err := c.Get(ctx, kube.ObjectKey{Name: metav1.NamespaceSystem}, &system); err != nil {
		return "", fmt.Errorf("read namespace %s, whose UID is the cluster's: %w", metav1.NamespaceSystem, err)
	}
	return string(system.UID), nil
}

func (sh *shell) runCSIController(ctx context.Context, p *csiProcess) (err error) {
	log, err := p.logger(sh)
	if err != nil {
		return err
	}
	creds, err := p.credentials(sh, log)
	if err != nil {
		return err
	}
	c, err := p.api(ctx, log)
	if err != nil {
		return err
	}
	uid, err := clusterUID(ctx, c)
	if err != nil {
		return err
	}
	registry, err := p.registry(creds, log)
	if err != nil {
		return err
	}
	nodes := &nodeClients{creds: creds}
	defer func() { err = errors.Join(err, nodes.close(), registry.Close()) }()
	controller, err := csicontroller.NewServer(csicontroller.Config{
		Client: c, Federation: creds.Identity().Federation, Site: p.site, Cluster: uid,
		Attachments: &attachments{registry: registry, site: p.site, now: sh.now, node: nodes.of},
	})
	if err != nil {
		return err
	}
	log.Info("CSI controller starts", "driver", v1alpha1.Driver, "site", p.site, "endpoint", p.endpoint, "version", versionOf())
	return p.serve(ctx, log, func(s grpc.ServiceRegistrar) {
		csi.RegisterIdentityServer(s, csidriver.NewIdentity(versionOf(), nil))
		csi.RegisterControllerServer(s, controller)
	})
}

// serve serves CSI, and says that it does on --health.
func (p *csiProcess) serve(ctx context.Context, log *slog.Logger, register func(grpc.ServiceRegistrar), also ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var up atomic.Bool
	parts := append([]func(context.Context) error{func(ctx context.Context) error {
		return csidriver.Serve(ctx, csidriver.ServerConfig{Endpoint: p.endpoint, Log: log, After: time.After}, func(s grpc.ServiceRegistrar) {
			register(s)
			up.Store(true)
		})
	}}, also...)
	if p.health != "" {
		parts = append(parts, func(ctx context.Context) error {
			return serveHealth(ctx, p.health, func() error {
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
		cancel() // one that ends takes the others with it
	}
	return err
}

func (sh *shell) runCSINode(ctx context.Context, p *csiProcess) (err error) {
	log, err := p.logger(sh)
	if err != nil {
		return err
	}
	creds, err := p.credentials(sh, log)
	if err != nil {
		return err
	}
	host, err := serviceAddress(p.gateway)
	if err != nil {
		return err
	}
	c, err := p.api(ctx, log)
	if err != nil {
		return err
	}
	uid, err := clusterUID(ctx, c)
	if err != nil {
		return err
	}
	var node corev1.Node
	if err := c.Get(ctx, kube.ObjectKey{Name: p.node}, &node); err != nil {
		return fmt.Errorf("--node %q: read the Node: %w", p.node, err)
	}
	conn, err := dialNode(creds, p.gateway, pki.Expect{Organizations: []string{creds.Identity().Organization}, Site: p.site})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	server, err := csinode.NewServer(csinode.Config{
		Gateway: &siteGateway{client: nodepb.NewNodeClient(conn), host: host, port: p.nfsPort}, Mounter: mount.Kernel{}, Resolver: net.DefaultResolver,
		Federation: creds.Identity().Federation, Site: p.site, Cluster: uid, Node: p.node, NodeUID: string(node.UID),
		SetIdentifier: mount.IdentifierSetter(p.identifier), NConnect: p.nconnect, After: time.After,
	})
	if err != nil {
		return err
	}
	log.Info("CSI node starts", "driver", v1alpha1.Driver, "site", p.site, "node", p.node, "gateway", p.gateway, "version", versionOf())
	kubelets := path.Join(p.kubeletDir, "plugins", v1alpha1.Driver, "csi.sock") // where the kubelet sees --endpoint
	return p.serve(ctx, log, func(s grpc.ServiceRegistrar) {
		csi.RegisterIdentityServer(s, csidriver.NewIdentity(versionOf(), nil))
		csi.RegisterNodeServer(s, server)
	}, func(ctx context.Context) error {
		return csidriver.ServeRegistration(ctx, csidriver.ServerConfig{Endpoint: p.registrationSocket, Log: log, After: time.After}, kubelets)
	})
}
