// SPDX-License-Identifier: Apache-2.0

package stranger

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/test/e2e/bed"
	"github.com/weir-storage/weir/test/e2e/kube"
	"github.com/weir-storage/weir/test/e2e/stage"
)

// hang bounds each step; nothing here is expected to take it.
const hang = 4 * time.Minute

const (
	site      = "utr"                      // as in stranger-values.yaml
	namespace = "weir-system"              // as in the documentation
	mirror    = "weir.test/storage/mirror" // their own registry, and a folder of it
	secretKey = "utr-secret"
	poolDir   = "/var/lib/weir-pool" // of the host node
)

// institution is the site of the test.
type institution struct {
	*kube.Site
	t    *testing.T
	dir  string
	weir string // the program
	etcd *stage.Etcd
	s3   *stage.S3
}

func TestStrangerReachesAFirstVolume(t *testing.T) {
	clusters := kube.Test(t, kube.Config{Sites: []string{site}, Guests: []string{site}})
	i := &institution{Site: clusters.Site(site), t: t, dir: t.TempDir()}
	ctx := i.bounded()
	if err := i.EnforcePolicies(t.Context()); err != nil {
		t.Fatal(err)
	}
	release, err := clusters.Release(ctx, "", strings.TrimPrefix(mirror, "weir.test/"))
	if err != nil {
		t.Fatal(err)
	}
	if i.weir, err = clusters.Weir(ctx); err != nil {
		t.Fatal(err)
	}
	certificates := i.certificates(clusters)
	i.neighbour()
	if i.s3, err = clusters.Stage.StartS3(ctx, i.Site.Site, "weir", secretKey); err != nil {
		t.Fatal(err)
	}
	i.prepare()
	flags := []string{"--namespace", namespace, "-f", filepath.Join(clusters.Root(), "charts/weir/ci/stranger-values.yaml"),
		"-f", i.addresses(), "-f", certificates}
	others, err := release.Others(ctx, i.Site, flags...)
	if err != nil {
		t.Fatal(err)
	}
	if err := clusters.Provide(ctx, others...); err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	i.helm(append([]string{"install", "weir", release.Chart, "--wait", "--timeout", "4m"}, flags...)...)
	t.Logf("installed in %v", time.Since(began).Round(time.Second))
	i.kubectl("wait", "--for=condition=Ready", "--timeout=2m", "sites/"+site)
	i.checkHowItRuns(release.Image)
	i.checkPolicies()
	i.firstVolume()
	t.Logf("%s", i.kubectl("get", "sites,geovolumes,geovolumecontents,persistentvolumeclaims", "-A", "-o", "wide"))
	said, err := i.GuestNode().Output(ctx, fmt.Sprintf("%s preflight --kubeconfig %s --namespace %s", i.weir, i.Kubeconfig(), namespace))
	if err != nil || !strings.Contains(said, "none of which waits to be pulled") {
		t.Errorf("weir preflight on a node: %v: %s", err, said)
	}
}

// certificates are what another site's administrator hands over. The registry's member is that
// one's too.
func (i *institution) certificates(c *kube.Clusters) string {
	i.t.Helper()
	const who = "Universiteit Utrecht"
	ca, file := filepath.Join(i.dir, "ca"), filepath.Join(i.dir, "certificates.yaml")
	i.run(i.weir, "pki", "init", "--dir", ca, "--federation", "demo")
	i.run(i.weir, "pki", "issue", "--dir", ca, "--organization", who, "--site", site, "--gateway", "registry", "--part", "registry",
		"--host",
		i.Addr())
	i.run(i.weir, "pki", "bundle", "--dir", ca, "--organization", who, "--site", site, "--host", i.Addr(), "--out", file)
	name := func(f string) string { return filepath.Join(ca, f) }
	var err error
	i.etcd, err = c.Stage.StartEtcd(i.bounded(), bed.Gatekeeper("demo", i.weir),
		map[string]stage.TLS{site: {CA: name("ca.crt"), Cert: name("registry.crt"), Key: name("registry.key")}}, i.Site.Site)
	if err != nil {
		i.t.Fatal(err)
	}
	return file
}

// neighbour starts the gateway of the site which is there already: that of who handed over the
// certificates. It runs on an address of the same network, without Kubernetes.
func (i *institution) neighbour() {
	i.t.Helper()
	const name = "ams-0"
	ca, dir, addr := filepath.Join(i.dir, "ca"), filepath.Join(i.dir, "ams"), i.AddrN(6)
	i.run(i.weir, "pki", "issue", "--dir", ca, "--organization", "SURF", "--site", "ams", "--gateway", name, "--host", addr)
	if err := os.Mkdir(dir, 0o700); err != nil {
		i.t.Fatal(err)
	}
	text := fmt.Sprintf(`federation: demo
organization: SURF
site: ams
region: nl
gateway: %s
listen: {grpc: "%s:7001", nfs: "%[2]s:2049"}
registry: {endpoints: [%[3]q]}
tls: {ca: %[4]s/ca.crt, cert: %[4]s/%[1]s.crt, key: %[4]s/%[1]s.key}
siteKey: %[5]s/site.key
pool: {path: %[5]s/pool, size: 2Gi}
lends: [Universiteit Utrecht]
`, name, addr, i.etcd.Endpoints()[0], ca, dir)
	config := filepath.Join(dir, "gateway.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		i.t.Fatal(err)
	}
	if _, err := i.Start(name, i.Command(context.WithoutCancel(i.t.Context()), i.weir, "gateway", "--config", config)); err != nil {
		i.t.Fatal(err)
	}
}

// prepare makes what the values name: the store's secret, and a disk.
func (i *institution) prepare() {
	i.t.Helper()
	if out, err := i.HostNode().Output(i.bounded(), "mkdir -p "+poolDir); err != nil {
		i.t.Fatalf("%v: %s", err, out)
	}
	i.apply(fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: %s, labels: {pod-security.kubernetes.io/enforce: privileged}}
---
apiVersion: v1
kind: Secret
metadata: {name: utr-s3, namespace: %[1]s}
stringData: {secret-key: %[2]s}
---
apiVersion: v1
kind: Secret
metadata: {name: mirror, namespace: %[1]s}
type: kubernetes.io/dockerconfigjson
stringData: {.dockerconfigjson: '{"auths": {"weir.test": {"auth": "bm9ib2R5OmFza3M="}}}'}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 100Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: local-ssd
  local: {path: %[3]s}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: e2e.weir.dev/node, operator: In, values: [host]}]}]}}
`, namespace, secretKey, poolDir))
}

// addresses are the values of the stage in place of those of the example, and the nodes on which
// parts can run here: the host node has no NFS client, and the guest no rules for packets.
func (i *institution) addresses() string {
	i.t.Helper()
	own := netip.MustParseAddr(i.Addr())
	nodes := netip.PrefixFrom(own, 24).Masked()
	text := fmt.Sprintf(`imageRegistry: %s
registry: {endpoints: [%q]}
store: {endpoint: %q}
gateway: {address: %s, pool: {size: 3Gi}}
networkPolicies:
  apiServers: [%[4]s/32]
  sites: [%[5]s]
  nodes: [%[5]s, %[6]s]
operator: {nodeSelector: {e2e.weir.dev/node: host}, replicas: 1}
csi:
  controller: {nodeSelector: {e2e.weir.dev/node: host}}
  node: {nodeSelector: {e2e.weir.dev/node: guest}}
`, mirror, i.etcd.Endpoints()[0], i.s3.Endpoint(), own, nodes, i.PodRange())
	file := filepath.Join(i.dir, "addresses.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		i.t.Fatal(err)
	}
	return file
}

// checkHowItRuns looks whether what the example asks for is what runs.
func (i *institution) checkHowItRuns(image string) {
	i.t.Helper()
	running := i.kubectl("get", "pods", "-n", namespace, "-o",
		"custom-columns=NAME:.metadata.name,HOST:.spec.hostNetwork,IMAGES:.spec.containers[*].image", "--no-headers")
	i.t.Logf("%s", running)
	for line := range strings.Lines(running) {
		f := strings.Fields(line) // name, true or <none>, images
		plugin := strings.HasPrefix(f[0], "weir-csi-node-")
		if hostNetwork := f[1] == "true"; hostNetwork != plugin {
			i.t.Errorf("pod %s: on the host's network: %v, want %v", f[0], hostNetwork, plugin)
		}
		for used := range strings.SplitSeq(f[2], ",") {
			if !strings.HasPrefix(used, mirror+"/") {
				i.t.Errorf("pod %s has image %s, want one of %s", f[0], used, mirror)
			}
		}
		if !strings.Contains(f[2], image+"@sha256:") {
			i.t.Errorf("pod %s has the images %s, want %s by its digest", f[0], f[2], image)
		}
	}
	if got := i.kubectl("get", "statefulsets,deployments", "-n", namespace, "-o", "name"); strings.Contains(got, "registry") ||
		strings.Contains(got, "store") {
		i.t.Errorf("there is a bundled registry or store: %s", got)
	}
}

// checkPolicies shows that the stage holds to the policies: a pod that looks like the operator
// reaches the registry as the operator must, and not the store; any other pod reaches it.
func (i *institution) checkPolicies() {
	i.t.Helper()
	const pod = `apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, labels: {app: probe%s}}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {e2e.weir.dev/node: host}
  containers: [{name: app, image: %s, imagePullPolicy: IfNotPresent}]
---
`
	const operator = ", app.kubernetes.io/name: weir, app.kubernetes.io/component: operator"
	i.apply(fmt.Sprintf(pod, "like-operator", namespace, operator, kube.ImageName("app")) +
		fmt.Sprintf(pod, "like-nobody", namespace, "", kube.ImageName("app")))
	i.kubectl("wait", "-n", namespace, "--for=condition=Ready", "--timeout=1m", "pod/like-operator", "pod/like-nobody")
	registry, _ := strings.CutPrefix(i.etcd.Endpoints()[0], "https://")
	for _, test := range []struct {
		pod, what, address string
		want               bool
	}{
		{"like-nobody", "the store", i.s3.Addr(), true},
		{"like-nobody", "the kubelet", i.Addr() + ":10250", true},
		{"like-operator", "the registry", registry, true},
		{"like-operator", "the store", i.s3.Addr(), false},
		{"like-operator", "the kubelet", i.Addr() + ":10250", false},
	} {
		host, port, _ := strings.Cut(test.address, ":")
		// Rules for a new pod come within a second; until then it reaches nobody.
		tries, seconds := 5, 1
		if !test.want {
			tries, seconds = 1, 3
		}
		script := fmt.Sprintf("for n in $(seq %d); do if nc -w %d %s %s </dev/null >/dev/null; then echo true; exit; fi; sleep 1; done; "+
			"echo false", tries, seconds, host, port)
		out, err := i.Kubectl(i.bounded(), "exec", "-n", namespace, test.pod, "--", "sh", "-c", script)
		if got := strings.TrimSpace(out); err != nil || got != strconv.FormatBool(test.want) {
			i.t.Errorf("pod %s reaches %s: %s, want %v: %v", test.pod, test.what, got, test.want, err)
		}
	}
	i.kubectl("delete", "pods", "-n", namespace, "-l", "app=probe", "--wait=false")
}

// firstVolume does what the chart's notes propose, and uses both volumes in pods.
func (i *institution) firstVolume() {
	i.t.Helper()
	i.apply(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: first, namespace: default}
spec: {storageClassName: weir, accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
---
apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: shared, namespace: default}
spec: {size: 1Gi, policy: standard}
---
apiVersion: v1
kind: Pod
metadata: {name: user, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {e2e.weir.dev/node: guest}
  containers:
  - {name: app, image: ` + kube.ImageName("app") + `, volumeMounts: [{name: first, mountPath: /first}, {name: shared, mountPath: /shared}]}
  volumes:
  - {name: first, persistentVolumeClaim: {claimName: first}}
  - {name: shared, persistentVolumeClaim: {claimName: shared}}
`)
	i.kubectl("wait", "--for=condition=Ready", "--timeout=3m", "geovolume/shared", "pod/user")
	out, err := i.Exec(i.bounded(), "user", "sh", "-c", `grep -E ' /(first|shared) ' /proc/mounts
for d in first shared; do echo "hello $d" >/$d/greeting && sync && cat /$d/greeting; done`)
	if err != nil || strings.Count(out, " nfs4 ") != 2 || !strings.HasSuffix(out, "hello first\nhello shared\n") {
		i.t.Fatalf("a pod with both volumes: %v: %s", err, out)
	}
	i.t.Logf("%s", out)
}

func (i *institution) bounded() context.Context {
	ctx, cancel := context.WithTimeout(i.t.Context(), hang)
	i.t.Cleanup(cancel)
	return ctx
}

// run runs a program at the site.
func (i *institution) run(program string, args ...string) {
	i.t.Helper()
	cmd := i.Command(i.bounded(), program, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		i.t.Fatalf("%s %s: %v: %s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
}

func (i *institution) kubectl(args ...string) string {
	i.t.Helper()
	out, err := i.Kubectl(i.bounded(), args...)
	if err != nil {
		i.t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func (i *institution) helm(args ...string) {
	i.t.Helper()
	if out, err := i.Helm(i.bounded(), args...); err != nil {
		i.t.Fatalf("helm %s: %v: %s", args[0], err, out)
	}
}

func (i *institution) apply(yaml string) {
	i.t.Helper()
	if err := i.Apply(i.bounded(), yaml); err != nil {
		i.t.Fatal(err)
	}
}
