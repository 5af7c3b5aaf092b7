// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/test/e2e/stage"
)

// hang bounds each step; nothing here is expected to take it.
const hang = 3 * time.Minute

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	return ctx
}

// TestClustersComeUp walks through the life of two clusters. They are started once, because that
// takes the most time. Package installed needs all that this test checks, so this test adds
// something only when installed fails.
func TestClustersComeUp(t *testing.T) {
	if os.Getenv("WEIR_SOAK") == "" {
		t.Skip("in the long form only, with WEIR_SOAK=1")
	}
	c := Test(t, Config{Sites: []string{"a", "b"}, Guests: []string{"a"}})
	t.Logf("all processes take %d MB", footprint(t, c.Stage.Prefix())>>20)
	for _, name := range c.Names() {
		if err := c.Stage.SetLink(bounded(t), name, stage.Link{Delay: 10 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
	}
	run := func(name string, test func(*testing.T, *Clusters)) {
		if !t.Run(name, func(t *testing.T) { test(t, c) }) {
			t.FailNow() // what follows would only fail for the same reason
		}
	}
	run("pods", testPods)
	run("services", testServices)
	run("across sites", testAcross)
	run("mounts", testMounts)
	run("images", testImages)
	run("site is lost", testLost)
	t.Logf("all processes take %d MB", footprint(t, c.Stage.Prefix())>>20)

	if left := c.Leftovers(); len(left) < 10 {
		t.Errorf("Leftovers before Down = %q: it must see what is there", left)
	}
	begin := time.Now()
	if err := c.Down(); err != nil {
		t.Error(err)
	}
	t.Logf("all is down after %v", time.Since(begin))
	if left := c.Leftovers(); len(left) > 0 {
		t.Errorf("Leftovers after Down = %q, want none", left)
	}
}

// pod is a manifest of a pod of the image app, on a node.
func pod(name, node, more string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %[1]s}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers:
  - {name: app, image: %s, imagePullPolicy: IfNotPresent%s
---
`, name, node, ImageName("app"), more)
}

// server answers HTTP requests at port 8080 with its name; it is ready when it does.
const server = `, readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}, command: [sh, -c, ` +
	`"mkdir /tmp/www; hostname >/tmp/www/index.html; exec httpd -f -p 8080 -h /tmp/www"]}`

// must is for answers of a cluster, which must come.
func must(t *testing.T) func(string, error) string {
	return func(out string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(out)
	}
}

func apply(t *testing.T, s *Site, yaml string) {
	t.Helper()
	if err := s.Apply(bounded(t), yaml); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, s *Site, pods ...string) {
	t.Helper()
	for _, p := range pods {
		must(t)(s.Kubectl(bounded(t), "wait", "--for=condition=Ready", "--timeout=120s", "pod/"+p))
	}
}

// testPods runs a pod on each node.
func testPods(t *testing.T, c *Clusters) {
	var wg sync.WaitGroup
	for _, name := range c.Names() {
		wg.Go(func() {
			s := c.Site(name)
			for _, n := range s.Nodes() {
				apply(t, s, pod("web-"+n.Name, n.Name, server))
				await(t, s, "web-"+n.Name)
				if got := must(t)(s.Exec(bounded(t), "web-"+n.Name, "hostname")); got != "web-"+n.Name {
					t.Errorf("a command in the pod of %s says that it is in %q", n.Name, got)
				}
			}
		})
	}
	wg.Wait()
}

// testServices reaches a Service from pods and from nodes, on the same node and on others, and the
// API server by its Service.
func testServices(t *testing.T, c *Clusters) {
	s := c.Site("a")
	for _, n := range s.Nodes() {
		apply(t, s, fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: web-%s}
spec:
  selector: {app: web-%[1]s}
  ports: [{port: 80, targetPort: 8080}]
`, n.Name))
	}
	for _, to := range s.Nodes() {
		addr := must(t)(s.Kubectl(bounded(t), "get", "service", "web-"+to.Name, "-o", "jsonpath={.spec.clusterIP}"))
		if !strings.HasPrefix(addr, "10.201.") {
			t.Errorf("Service has address %s, which is not in %s", addr, s.ServiceRange())
		}
		fetch := "timeout 2 wget -q -O - http://" + addr + "/" // with -T, Debian's busybox crashes
		for _, from := range s.Nodes() {
			eventually(t, "pod on "+from.Name+" to pod on "+to.Name, func(ctx context.Context) (string, error) {
				return s.Exec(ctx, "web-"+from.Name, "sh", "-c", fetch)
			}, "web-"+to.Name)
			eventually(t, "node "+from.Name+" to pod on "+to.Name, func(ctx context.Context) (string, error) {
				return from.Output(ctx, "curl -sS -m 2 http://"+addr+"/")
			}, "web-"+to.Name)
		}
	}
	for _, name := range c.Names() {
		s := c.Site(name)
		for _, n := range s.Nodes() {
			eventually(t, "API server from pod on "+n.Name, func(ctx context.Context) (string, error) {
				return s.Exec(ctx, "web-"+n.Name, "sh", "-c", "timeout 2 nc "+s.serviceAddr(1)+" 443 </dev/null && echo reached")
			}, "reached")
		}
	}
}

// eventually tries until the answer is as wanted: kube-proxy takes a moment.
func eventually(t *testing.T, what string, try func(context.Context) (string, error), want string) {
	t.Helper()
	ctx := bounded(t)
	for {
		out, err := try(ctx)
		if err == nil && strings.TrimSpace(out) == want {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %q, %v, want %q", what, out, err, want)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// testAcross reaches a pod at another site by its node's address. It cannot while the link is cut.
func testAcross(t *testing.T, c *Clusters) {
	a, b := c.Site("a"), c.Site("b")
	apply(t, b, strings.Replace(pod("front", "b-host", server), "spec:\n", "spec:\n  hostNetwork: true\n", 1))
	await(t, b, "front")
	ctx := bounded(t)
	var best = hang
	for range 5 {
		begin := time.Now()
		conn, err := a.DialContext(ctx, "tcp", b.Addr()+":8080")
		if err != nil {
			t.Fatal(err)
		}
		best = min(best, time.Since(begin))
		_ = conn.Close()
	}
	if best < 20*time.Millisecond {
		t.Errorf("a connection from site a to site b took %v, want at least the round trip of 20ms", best)
	}
	t.Logf("a connection from site a to site b takes %v", best)
	fetch := "timeout 2 wget -q -O /dev/null http://" + b.Addr() + ":8080/ && echo reached || echo lost"
	for _, n := range a.Nodes() {
		eventually(t, "site b from pod on "+n.Name,
			func(ctx context.Context) (string, error) { return a.Exec(ctx, "web-"+n.Name, "sh", "-c", fetch) }, "reached")
	}
	if err := c.Stage.Cut(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if got := must(t)(a.Exec(ctx, "web-a-guest", "sh", "-c", fetch)); got != "lost" {
		t.Errorf("with site b cut off, a pod at site a says %q", got)
	}
	if _, err := b.Kubectl(ctx, "get", "nodes"); err != nil {
		t.Errorf("a site that is cut off must go on: %v", err)
	}
	if err := c.Stage.Heal(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "site b, healed", func(ctx context.Context) (string, error) { return a.Exec(ctx, "web-a-guest", "sh", "-c", fetch) },
		"reached")
}

// testMounts does on a guest what the node plugin of a CSI driver needs: a mount made in a
// privileged pod appears on the node and in another pod, and the pod can set the identity of the
// kernel's NFS client.
func testMounts(t *testing.T, c *Clusters) {
	s := c.Site("a")
	plugin := strings.Replace(pod("plugin", "a-guest", `, securityContext: {privileged: true},
    volumeMounts: [{name: kubelet, mountPath: /var/lib/kubelet, mountPropagation: Bidirectional}]}
  volumes: [{name: kubelet, hostPath: {path: /var/lib/kubelet}}]`), "spec:\n", "spec:\n  hostNetwork: true\n", 1)
	user := pod("user", "a-guest", `, volumeMounts: [{name: kubelet, mountPath: /seen, mountPropagation: HostToContainer}]}
  volumes: [{name: kubelet, hostPath: {path: /var/lib/kubelet}}]`)
	apply(t, s, plugin+user)
	await(t, s, "plugin", "user")
	ctx, guest := bounded(t), s.GuestNode()
	must(t)(s.Exec(ctx, "plugin", "sh", "-c",
		`mkdir /var/lib/kubelet/e2e && mount -t tmpfs none /var/lib/kubelet/e2e && echo words >/var/lib/kubelet/e2e/text`))
	if got := must(t)(guest.Output(ctx, "cat /var/lib/kubelet/e2e/text")); got != "words" {
		t.Errorf("on the node, a mount of a pod has %q", got)
	}
	if got := must(t)(s.Exec(ctx, "user", "cat", "/seen/e2e/text")); got != "words" {
		t.Errorf("in another pod, a mount of a pod has %q", got)
	}
	must(t)(s.Exec(ctx, "plugin", "umount", "/var/lib/kubelet/e2e"))
	if got := must(t)(guest.Output(ctx, "ls /var/lib/kubelet/e2e")); got != "" {
		t.Errorf("on the node, after the pod has unmounted, there is %q", got)
	}
	const identifier = "/sys/fs/nfs/net/nfs_client/identifier"
	must(t)(s.Exec(ctx, "plugin", "sh", "-c", "echo cluster/node >"+identifier))
	if got := must(t)(guest.Output(ctx, "cat "+identifier)); got != "cluster/node" {
		t.Errorf("the kernel's NFS client calls itself %q", got)
	}
	if got := must(t)(guest.Output(ctx, "grep -cw nfs4 /proc/filesystems")); got != "1" {
		t.Errorf("the kernel has no NFS client")
	}
	must(t)(s.Kubectl(ctx, "delete", "pod", "plugin", "user", "--now"))
}

// testImages runs a program of each image, one after the other, and helm.
func testImages(t *testing.T, c *Clusters) {
	s := c.Site("b")
	release, err := c.Release(t.Context(), "", "") // compiling may take long
	if err != nil {
		t.Fatal(err)
	}
	var containers strings.Builder
	add := func(name, image, arg string) {
		fmt.Fprintf(&containers, "  - {name: %s, image: %q, args: [%s]}\n", name, image, arg)
	}
	add("weir", release.Image+":"+release.Version, "version")
	for name, arg := range map[string]string{"etcd": "--version", "versitygw": "--version", "csi-attacher": "--version",
		"csi-provisioner": "--version", "csi-resizer": "--version", "csi-snapshotter": "--version",
		"snapshot-controller": "--version"} {
		if err := c.Provide(bounded(t), ImageName(name)); err != nil {
			t.Fatal(err)
		}
		add(name, ImageName(name), arg)
	}
	if err := c.Provide(t.Context(), ImageName("nothing")); err == nil {
		t.Error("an image that is not there was made")
	}
	apply(t, s, strings.Replace(pod("programs", "b-host", "}"), "  containers:\n",
		"  initContainers:\n"+containers.String()+"  containers:\n", 1))
	await(t, s, "programs") // it is ready when all have ended well
	if out := must(t)(s.Helm(bounded(t), "list", "-A", "-q")); out != "" {
		t.Errorf("helm finds %q", out)
	}
}

// testLost kills a site and brings it back: what was on its disks is there, and its pods run again.
func testLost(t *testing.T, c *Clusters) {
	a, b := c.Site("a"), c.Site("b")
	ctx := bounded(t)
	must(t)(a.Kubectl(ctx, "create", "configmap", "kept", "--from-literal=key=value"))
	begin := time.Now()
	a.Kill()
	t.Logf("site a is dead after %v", time.Since(begin))
	call, cancel := context.WithTimeout(ctx, 10*time.Second)
	if _, err := a.Kubectl(call, "get", "nodes", "--request-timeout=2s"); err == nil {
		t.Error("the API server of a dead site answers")
	}
	cancel()
	must(t)(b.Kubectl(ctx, "get", "nodes"))
	if a.HostNode() != nil || a.GuestNode() != nil {
		t.Error("a dead site has nodes")
	}
	begin = time.Now()
	if err := a.Return(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("site a is back after %v", time.Since(begin))
	if err := a.Return(ctx); err == nil {
		t.Error("Return of a site that lives worked")
	}
	if got := must(t)(a.Kubectl(ctx, "get", "configmap", "kept", "-o", "jsonpath={.data.key}")); got != "value" {
		t.Errorf("an object has %q after its site was lost", got)
	}
	for _, n := range a.Nodes() {
		eventually(t, "pod on "+n.Name+", again", func(ctx context.Context) (string, error) {
			return a.Exec(ctx, "web-"+n.Name, "timeout", "2", "wget", "-q", "-O", "-", "http://127.0.0.1:8080/")
		}, "web-"+n.Name)
	}
	t.Logf("the pods of site a are back after %v", time.Since(begin))
}

// footprint is the memory of all processes of a stage, in bytes. What several share counts once.
func footprint(t *testing.T, prefix string) (total int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		env, _ := os.ReadFile(filepath.Join(dir, "environ")) // the process may have ended
		group, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if !strings.Contains(string(env)+string(group)+string(args), prefix) {
			continue
		}
		rollup, _ := os.ReadFile(filepath.Join(dir, "smaps_rollup"))
		for line := range strings.Lines(string(rollup)) {
			var kb int
			if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kb); n == 1 {
				total += kb << 10
			}
		}
	}
	return total
}
