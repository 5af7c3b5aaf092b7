// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// socket is where a node's containerd listens, in the node.
const socket = "/run/weir/containerd.sock"

// Node is a node of a cluster. Its methods may be called from several goroutines.
type Node struct {
	Name string // of the Node object
	Addr string

	site    *Site
	machine machine
	number  int    // within the site
	disk    string // folder of containers' files, in the node
	isGuest bool
}

// machine is what a node runs on.
type machine interface {
	// Output runs a bash script as root and returns its output. It is an error when the script
	// fails.
	Output(ctx context.Context, script string) (string, error)
	// Kill is a power cut. Disks stay.
	Kill()
	// daemon starts a program that runs until Kill.
	daemon(name, program string, args ...string) error
}

// Output runs a bash script on the node, outside of all pods, and returns what it printed.
func (n *Node) Output(ctx context.Context, script string) (string, error) {
	return n.machine.Output(ctx, script)
}

// startNode starts containerd and, when the API server is ready, kubelet and kube-proxy. It returns
// when the node has reported ready at a time after begin.
func (s *Site) startNode(ctx context.Context, n *Node, begin time.Time) error {
	dir := s.nodeDir(n.Name)
	for _, name := range []string{"cni", filepath.Join("registries", registryName)} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	if err := s.pki.kubeconfig(n.Name, subject{"system:node:" + n.Name, []string{"system:nodes"}}, s.server(), n.Name, n.Addr); err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"containerd.toml":     n.containerd(dir),
		"crun":                []byte(crun),
		"cni/10-e2e.conflist": n.cni(),
		"kubelet.json":        n.kubelet(),
		"kube-proxy.json":     n.proxy(),

		"registries/" + registryName + "/hosts.toml": s.hosts(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o755); err != nil {
			return err
		}
	}
	if err := n.daemon("containerd", "-c", filepath.Join(dir, "containerd.toml")); err != nil {
		return err
	}
	// A kubelet that finds no containerd ends.
	if _, err := n.Output(ctx, "until [ -S "+socket+" ]; do sleep 0.1; done"); err != nil {
		return fmt.Errorf("wait for containerd on node %s: %w", n.Name, err)
	}
	if err := s.await(ctx, "the API server", s.api.ready); err != nil {
		return err
	}
	kind := "host"
	if n.isGuest {
		kind = "guest"
	}
	err := n.daemon("kubelet", "--config="+filepath.Join(dir, "kubelet.json"), "--kubeconfig="+s.pki.file(n.Name+".conf"),
		"--hostname-override="+n.Name, "--node-ip="+n.Addr, "--node-labels=e2e.weir.dev/node="+kind, "--housekeeping-interval=60s", "--v=2")
	if err != nil {
		return err
	}
	if err == nil {
		err = n.daemon("kube-proxy", "--config="+filepath.Join(dir, "kube-proxy.json"), "--hostname-override="+n.Name)
	}
	if err == nil {
		err = s.awaitNode(ctx, n.Name, begin.Truncate(time.Second)) // what the API server says of times has no fractions
	}
	if err == nil {
		s.c.say("node %s is ready after %v", n.Name, time.Since(begin).Round(100*time.Millisecond))
	}
	return err
}

func (n *Node) daemon(program string, args ...string) error {
	path, err := n.site.c.program(program)
	if err != nil {
		return err
	}
	return n.machine.daemon(program, path, args...)
}

// crun starts containers in guests. There each start of runc, a Go program, takes most of a second,
// and a container needs several. Debian's crun refuses version numbers of the runtime specification
// that are newer than itself, so the script lowers the number; nothing of the newer versions is
// used here.
const crun = `#!/bin/bash
for ((i = 1; i < $#; i++)); do
	[ "${!i}" != --bundle ] || { next=$((i + 1)); sed -i 's/"ociVersion":"1[.][0-9.]*"/"ociVersion":"1.0.2"/' "${!next}/config.json"; }
done
exec /usr/bin/crun "$@"
`

// containerd is containerd's configuration.
func (n *Node) containerd(dir string) []byte {
	bin, runtime := n.site.c.bin, filepath.Join(n.site.c.bin, "runc")
	if n.isGuest {
		runtime = filepath.Join(dir, "crun")
	}
	text := fmt.Sprintf(`version = 3
root = %q
state = "/run/weir/containerd"
[grpc]
  address = %q
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = %q
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = %q
[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  restrict_oom_score_adj = true # root may lack CAP_SYS_RESOURCE
  stats_collect_period = "10m" # nobody reads them; each second, as without this, is dear in a guest
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = [%q]
  conf_dir = %q
  use_internal_loopback = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = %q
`, n.disk, socket, ImageName("pause"), filepath.Join(dir, "registries"), filepath.Join(bin, "cni"), filepath.Join(dir, "cni"), runtime)
	return []byte(text)
}

// cni configures the pod network: a bridge, from which the node routes. node/*.sh hide pods'
// addresses from other sites.
func (n *Node) cni() []byte {
	return text(object{"cniVersion": "1.0.0", "name": "e2e", "plugins": []object{{
		"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
		"ipam": object{
			"type": "host-local", "dataDir": "/run/weir/cni",
			"ranges": [][]object{{{"subnet": n.site.nodePods(n.number)}}},
			"routes": []object{{"dst": "0.0.0.0/0"}},
		},
	}}})
}

func (n *Node) kubelet() []byte {
	group, enforce := "/"+n.site.group, "pods"
	if n.isGuest {
		group, enforce = "/", "none" // a kernel for one processor has no cpuset controller
	}
	pki := n.site.pki
	return text(object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"failCgroupV1": false, "cgroupDriver": "cgroupfs", "cgroupRoot": group, "enforceNodeAllocatable": []string{enforce},
		"failSwapOn": false, "protectKernelDefaults": !n.isGuest, // or it would set them, for the whole machine
		"makeIPTablesUtilChains": false, "containerRuntimeEndpoint": "unix://" + socket,
		"tlsCertFile": pki.file(n.Name + ".crt"), "tlsPrivateKeyFile": pki.file(n.Name + ".key"),
		"authentication": object{"anonymous": object{"enabled": false}, "webhook": object{"enabled": true},
			"x509": object{"clientCAFile": pki.file("ca.crt")}},
		"authorization": object{"mode": "Webhook"}, "resolvConf": "",
		"imageGCHighThresholdPercent": 100, // how full this machine's disk is, is not the node's affair
		"evictionHard": object{"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%",
			"nodefs.inodesFree": "1%"},
		"syncFrequency": "5s", "volumeStatsAggPeriod": "20s",
	})
}

func (n *Node) proxy() []byte {
	mode := "nftables"
	if n.isGuest {
		mode = "iptables"
	}
	return text(object{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode": mode, "clusterCIDR": n.site.PodRange(), "detectLocalMode": "ClusterCIDR",
		"bindAddress": n.Addr, "healthzBindAddress": n.Addr + ":10256", "metricsBindAddress": "127.0.0.1:10249",
		"clientConnection": object{"kubeconfig": n.site.pki.file("proxy.conf")},
		"iptables":         object{"syncPeriod": "5s"}, // so soon it tries again what failed
		// All zero: leave the kernel's settings alone.
		"conntrack": object{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
	})
}

type object map[string]any

// text is an object as the programs read it; JSON is YAML.
func text(o object) []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings, numbers and lists of them
	}
	return b
}

// awaitNode waits until a node says that it is ready, and said so after since.
func (s *Site) awaitNode(ctx context.Context, name string, since time.Time) error {
	return s.await(ctx, "node "+name+" to be ready", func(ctx context.Context) error {
		var n struct {
			Status struct {
				Conditions []struct {
					Type, Status, Message string
					LastHeartbeatTime     time.Time
				}
			}
		}
		if err := s.api.get(ctx, "/api/v1/nodes/"+name, &n); err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == "Ready" {
				if c.Status == "True" && !c.LastHeartbeatTime.Before(since) {
					return nil
				}
				return fmt.Errorf("ready is %s since %v: %s", c.Status, c.LastHeartbeatTime, c.Message)
			}
		}
		return fmt.Errorf("it has no condition Ready")
	})
}

// awaitAccounts waits until pods can be made in the namespace default.
func (s *Site) awaitAccounts(ctx context.Context) error {
	return s.await(ctx, "the default service account", func(ctx context.Context) error {
		return s.api.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default", nil)
	})
}
