// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"path/filepath"
	"strings"
)

// ownEtcd is where a cluster's own etcd listens; 2379 is left to a registry.
const ownEtcd = "http://127.0.0.1:12379"

// startControl starts the control processes on the host node. It returns when the API server is
// ready.
func (s *Site) startControl(ctx context.Context) error {
	const etcd, peers = ownEtcd, "http://127.0.0.1:12380"
	// Not syncing loses nothing when a process is killed, which is all that happens here.
	err := s.daemon("kube-etcd", "etcd", "--name=site", "--data-dir="+filepath.Join(s.Dir(), "kube-etcd.data"), "--unsafe-no-fsync",
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd, "--listen-peer-urls="+peers,
		"--initial-advertise-peer-urls="+peers, "--initial-cluster=site="+peers, "--log-level=warn")
	if err == nil { // an API server that comes too early waits a second and more before it tries again
		err = s.await(ctx, "etcd", func(ctx context.Context) error {
			conn, err := s.DialContext(ctx, "tcp", strings.TrimPrefix(etcd, "http://"))
			if err == nil {
				err = conn.Close()
			}
			return err
		})
	}
	if err != nil {
		return err
	}
	err = s.startAPI(ctx)
	// Those that start before the API server lose seconds waiting for it.
	if err == nil {
		err = s.daemon("kube-controller-manager", "kube-controller-manager", "--kubeconfig="+s.pki.file("controller.conf"),
			"--bind-address=127.0.0.1", "--leader-elect=false", "--service-account-private-key-file="+s.pki.file("sa.key"),
			"--root-ca-file="+s.pki.file("ca.crt"), "--cluster-signing-cert-file="+s.pki.file("ca.crt"),
			"--cluster-signing-key-file="+s.pki.file("ca.key"), "--attach-detach-reconcile-sync-period=5s")
	}
	if err == nil {
		err = s.daemon("kube-scheduler", "kube-scheduler", "--kubeconfig="+s.pki.file("scheduler.conf"), "--bind-address=127.0.0.1",
			"--leader-elect=false")
	}
	return err
}

// startAPI starts the API server and returns when it is ready.
func (s *Site) startAPI(ctx context.Context) error {
	err := s.daemon("kube-apiserver", "kube-apiserver", "--etcd-servers="+ownEtcd,
		"--bind-address="+s.Addr(), "--advertise-address="+s.Addr(), "--secure-port=6443", "--service-cluster-ip-range="+s.ServiceRange(),
		"--authorization-mode=Node,RBAC", "--allow-privileged=true", "--client-ca-file="+s.pki.file("ca.crt"),
		"--tls-cert-file="+s.pki.file("apiserver.crt"), "--tls-private-key-file="+s.pki.file("apiserver.key"),
		"--kubelet-client-certificate="+s.pki.file("apiserver-kubelet.crt"), "--kubelet-client-key="+s.pki.file("apiserver-kubelet.key"),
		"--kubelet-certificate-authority="+s.pki.file("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+s.pki.file("sa.pub"),
		"--service-account-signing-key-file="+s.pki.file("sa.key"))
	if err == nil {
		err = s.await(ctx, "the API server", s.api.ready)
	}
	return err
}
