// SPDX-License-Identifier: Apache-2.0

package csicmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"time"

	"github.com/weir-storage/weir/csi-driver/mount"
	csinode "github.com/weir-storage/weir/csi-driver/node"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
	csidriver "github.com/weir-storage/weir/csi-driver"
	"github.com/weir-storage/weir/gateway/node/nodepb"
	"github.com/weir-storage/weir/pki"
)

func nodeCommand(sh *cli.Shell) *cobra.Command {
	p := new(part)
	c := &cobra.Command{
		Use: "node --site SITE --node NODE --gateway HOST:PORT", Short: "Serve CSI's node part", Args: cli.Args(cobra.NoArgs),
		Long: "Serves the node part of the CSI driver to the kubelet of this node: mounts volumes of the site's\n" +
			"gateway with the kernel's NFS client.",
		Example: "  weir csi node --config /etc/weir/csi.yaml --site ams --node worker-1 --gateway 10.96.0.7:7001",
		RunE: func(c *cobra.Command, _ []string) error {
			p.NoRegistry = true
			if err := p.Complete(sh.Getenv); err != nil {
				return err
			}
			if p.node == "" {
				return cli.Usage("csi node: no --node: give the name of the Node object that this is")
			}
			return runNode(c.Context(), sh, p)
		},
	}
	p.Flags(c)
	f := c.Flags()
	f.StringVar(&p.node, "node", "", "`NAME` of the Node object")
	f.StringVar(&p.registrationSocket, "registration-socket", csidriver.RegistrationSocket,
		"`SOCKET` where the kubelet looks for the driver")
	f.StringVar(&p.kubeletDir, "kubelet-dir", "/var/lib/kubelet", "the kubelet's `DIRECTORY`")
	f.StringVar(&p.identifier, "identifier", "/sys/fs/nfs/net/nfs_client/identifier",
		"`FILE` with the identity of the kernel's NFS client")
	f.Uint16Var(&p.nfsPort, "nfs-port", 2049, "`PORT` of NFS at the Service")
	f.StringVar(&p.tlsName, "nfs-tls-name", "", "mount over TLS, with this `NAME` in the gateway's certificate")
	f.IntVar(&p.nconnect, "nconnect", 0, "`NUMBER` of connections of a mount; 0: the kernel's default")
	return c
}

func runNode(ctx context.Context, sh *cli.Shell, p *part) (err error) {
	log, err := p.Logger(sh)
	if err != nil {
		return err
	}
	creds, err := p.Credentials(sh, log)
	if err != nil {
		return err
	}
	host, err := serviceAddress(p.gateway)
	if err != nil {
		return err
	}
	cluster, c, err := p.api(ctx, sh, log)
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
	if strings.ContainsAny(p.tlsName, ":/") {
		return cli.Usage("--nfs-tls-name %q: write the name alone, without a port or a path", p.tlsName)
	}
	conn, err := dialNode(creds, p.gateway, pki.Expect{Organizations: []string{creds.Identity().Organization}, Site: p.Site})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	server, err := csinode.NewServer(csinode.Config{
		Gateway: &siteGateway{client: nodepb.NewNodeClient(conn), host: host, port: p.nfsPort},
		Mounter: mount.Kernel{}, Resolver: net.DefaultResolver,
		Federation: creds.Identity().Federation, Site: p.Site, Cluster: uid, Node: p.node, NodeUID: string(node.UID),
		SetIdentifier: mount.IdentifierSetter(p.identifier), NConnect: p.nconnect, TLSName: p.tlsName, After: time.After,
	})
	if err != nil {
		return err
	}
	log.Info("CSI node starts", "driver", v1alpha1.Driver, "site", p.Site, "node", p.node, "gateway", p.gateway,
		"version", sh.Version)
	socket := path.Join(p.kubeletDir, "plugins", v1alpha1.Driver, "csi.sock") // where the kubelet sees --endpoint
	return p.serve(ctx, sh, log, process.Metrics{Credentials: creds, Cluster: cluster}, func(s grpc.ServiceRegistrar) {
		csi.RegisterIdentityServer(s, csidriver.NewIdentity(sh.Version, nil))
		csi.RegisterNodeServer(s, server)
	}, func(ctx context.Context) error {
		cfg := csidriver.ServerConfig{Endpoint: p.registrationSocket, Log: log, After: time.After}
		return csidriver.ServeRegistration(ctx, cfg, socket)
	})
}
