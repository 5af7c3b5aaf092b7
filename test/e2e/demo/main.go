// SPDX-License-Identifier: Apache-2.0

// Command demo shows Weir on Kubernetes, on one machine: three real clusters with Weir installed by
// its chart, a volume that one site declares and another imports, and the loss of a whole site
// while a pod at another site writes.
//
//	go run ./test/e2e/demo
//
// It needs root on Debian, installs and builds what is missing, and leaves only caches behind. With
// KEEP=1 in the environment it leaves everything running at the end, prints how to use it, and
// waits for Ctrl-C.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-storage/weir/test/e2e/installed"
	"github.com/weir-storage/weir/test/e2e/kube"
	"github.com/weir-storage/weir/test/e2e/playbill"
	"github.com/weir-storage/weir/test/e2e/stage"
)

func main() { playbill.Run(demo) }

// show is the demonstration while it runs.
type show struct {
	*playbill.Play
	*installed.Federated
	source string // a tree of files, as every machine sees it
	sum    string // hash of its files' hashes
	slog   string // how much was written to the SLOG at a before there was load
}

func demo(ctx context.Context, p *playbill.Play, dir string) (err error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	s := &show{Play: p, source: filepath.Join(strings.TrimSpace(string(root)), "src")}
	s.Title("Three Kubernetes clusters, from source, joined by a wide-area network")
	clusters, err := kube.Up(ctx, kube.Config{Sites: []string{"a", "b", "c"}, ZFS: []string{"a"}, StateDir: dir, Progress: os.Stderr,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			look, cancel := context.WithTimeout(context.Background(), time.Minute)
			err = errors.Join(err, clusters.Dump(look))
			cancel()
		}
		if derr := clusters.Down(); derr != nil {
			err = errors.Join(err, derr)
		}
	}()
	s.Title("helm install at each: one chart, one site. At a the pool is ZFS, with a log device (SLOG) and a cache device (L2ARC)")
	if s.Federated, err = installed.Install(ctx, clusters,
		func(format string, a ...any) { fmt.Printf("  "+format+"\n", a...) }); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{s.declare, s.share, s.raise, s.lose, s.comeBack} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	s.Facts()
	playbill.Keep(ctx, func() {
		fmt.Printf("\nIt runs until Ctrl-C. To look at site a:\n  KUBECONFIG=%s ip netns exec %s-a %s get gv,gvc,sites -A -o wide\n",
			s.Site("a").Kubeconfig(), s.Stage.Prefix(), filepath.Join(s.Bin(), "kubectl"))
	})
	return nil
}

// kubectl runs a command at a site and returns what it printed.
func (s *show) kubectl(ctx context.Context, site string, args ...string) (string, error) {
	out, err := s.Site(site).Kubectl(ctx, args...)
	if err != nil {
		return "", fmt.Errorf("site %s: kubectl %s: %w: %s", site, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out), nil
}

// table prints what a person sees at a site.
func (s *show) table(ctx context.Context, site string) error {
	out, err := s.kubectl(ctx, site, "get", "gv,gvc,sites", "-A", "-o", "wide")
	fmt.Printf("  kubectl get gv,gvc,sites -o wide, at %s\n%s", site, playbill.Indent(out))
	return err
}

// apply prints a manifest and applies it.
func (s *show) apply(ctx context.Context, site, text string) error {
	fmt.Print(playbill.Indent(text))
	return s.Site(site).Apply(ctx, text)
}

func (s *show) wait(ctx context.Context, site, what, condition string) error {
	_, err := s.kubectl(ctx, site, "wait", "--for="+condition, "--timeout=150s", what)
	return err
}

// exec runs a script in a pod.
func (s *show) exec(ctx context.Context, site, pod, script string) (string, error) {
	out, err := s.Site(site).Exec(ctx, pod, "sh", "-c", script)
	if err != nil {
		return "", fmt.Errorf("site %s, pod %s: %s: %w: %s", site, pod, script, err, out)
	}
	return strings.TrimSpace(out), nil
}

const objects = `apiVersion: storage.weir.dev/v1alpha1
kind: VolumePolicy
metadata: {name: safe}
spec: {replication: {copies: 2}, durability: {acknowledge: Sites, sites: 2}}
---
apiVersion: storage.weir.dev/v1alpha1
kind: VolumePolicy
metadata: {name: safer}
spec: {replication: {copies: 3}, durability: {acknowledge: Sites, sites: 2}}
---
apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: shared, namespace: default}
spec: {size: 4Gi, policy: safer, grants: [{site: b, namespace: default}], home: {preferredSites: [a]}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: geo}
provisioner: csi.weir.dev
parameters: {policy: safe}
allowVolumeExpansion: true
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: safer}
driverName: csi.weir.dev
parameters: {policy: safer}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: results, namespace: default}
spec: {accessModes: [ReadWriteMany], storageClassName: geo, resources: {requests: {storage: 1Gi}}}
`

const imported = `apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: from-a, namespace: default}
spec: {import: {volume: default.shared}}
`

// declare applies what a person writes.
func (s *show) declare(ctx context.Context) error {
	s.Title("At a: policies, a volume that is granted to b, and a storage class with a claim")
	if err := s.apply(ctx, "a", objects); err != nil {
		return err
	}
	if err := s.wait(ctx, "a", "gv/shared", "condition=Ready"); err != nil {
		return err
	}
	if err := s.table(ctx, "a"); err != nil {
		return err
	}
	var err error
	s.slog, err = s.pools(ctx, "before there is load")
	return err
}

// pools prints how the pool at a is, once it is told, and returns how much was written to its SLOG.
func (s *show) pools(ctx context.Context, when string) (slog string, err error) {
	since := time.Now()
	for {
		at, err := s.kubectl(ctx, "a", "get", "cachepool/a-0", "-o", "jsonpath={.status.asOf}")
		if err != nil {
			return "", err
		}
		if t, err := time.Parse(time.RFC3339, at); err == nil && !t.Before(since.Truncate(time.Second)) || time.Since(since) > time.Minute {
			break
		}
		time.Sleep(time.Second)
	}
	out, err := s.kubectl(ctx, "a", "get", "cachepools", "-o", "wide")
	fmt.Printf("  kubectl get cachepools -o wide, at a, %s\n%s", when, playbill.Indent(out))
	if err != nil {
		return "", err
	}
	return s.kubectl(ctx, "a", "get", "cachepool/a-0", "-o", `jsonpath={.status.classes[?(@.class=="Log")].written}`)
}

// pod returns the manifest of a pod with volumes on the node that has an NFS client. The pod also
// sees the source tree, to copy files from.
func (s *show) pod(name string, claims map[string]string) string {
	mounts, volumes := "", ""
	for path, claim := range claims {
		mounts += fmt.Sprintf(", {name: %s, mountPath: %s}", claim, path)
		volumes += fmt.Sprintf(", {name: %s, persistentVolumeClaim: {claimName: %[1]s}}", claim)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {e2e.weir.dev/node: guest}
  containers:
  - {name: app, image: %s, imagePullPolicy: IfNotPresent, volumeMounts: [{name: source, mountPath: /source, readOnly: true}%s]}
  volumes: [{name: source, hostPath: {path: %s}}%s]
`, name, kube.ImageName("app"), mounts, s.source, volumes)
}

// files lists the files of the tree, sums hashes their names and contents.
const (
	files = "find . -path ./cmd -prune -o -type f -print"
	sums  = files + " | LC_ALL=C sort | xargs sha256sum | sha256sum"
)

// share has a pod at each of two sites use the volume.
func (s *show) share(ctx context.Context) error {
	s.Title("A pod at a copies the Go standard library's source tree into it")
	if err := s.apply(ctx, "a", s.pod("at-a", map[string]string{"/data": "shared", "/results": "results"})); err != nil {
		return err
	}
	if err := s.wait(ctx, "a", "pod/at-a", "condition=Ready"); err != nil {
		return err
	}
	mount, err := s.exec(ctx, "a", "at-a", "grep ' /data ' /proc/mounts")
	if err != nil {
		return err
	}
	fmt.Println("  " + mount)
	count, err := s.original(ctx, files+" | wc -l")
	if err != nil {
		return err
	}
	if s.sum, err = s.original(ctx, sums); err != nil {
		return err
	}
	begin := time.Now()
	_, err = s.exec(ctx, "a", "at-a", `set -e; cd /source; mkdir /data/go; ls | grep -vx cmd | xargs -P 8 -I {} cp -R {} /data/go; sync`)
	if err != nil {
		return err
	}
	took := time.Since(begin)
	s.Title("b imports the volume, by its grant, and a pod there reads the tree")
	if err := s.apply(ctx, "b", imported); err != nil {
		return err
	}
	if err := s.wait(ctx, "b", "gv/from-a", "condition=Ready"); err != nil {
		return err
	}
	if err := s.apply(ctx, "b", s.pod("at-b", map[string]string{"/data": "from-a"})); err != nil {
		return err
	}
	if err := s.wait(ctx, "b", "pod/at-b", "condition=Ready"); err != nil {
		return err
	}
	if err := s.verify(ctx, "b", "at-b"); err != nil {
		return err
	}
	s.Fact("%s files of the Go library copied by a pod at a in %.0f s; read by a pod at b, every hash is right", count, took.Seconds())
	if err := s.table(ctx, "b"); err != nil {
		return err
	}
	slog, err := s.pools(ctx, "after it")
	if err != nil {
		return err
	}
	s.Fact("the pool at a is ZFS: what was written to its log device (SLOG) went from %s to %s", s.slog, slog)
	return nil
}

// verify compares the tree's hashes with those of the original.
func (s *show) verify(ctx context.Context, site, pod string) error {
	got, err := s.exec(ctx, site, pod, "cd /data/go && "+sums)
	if err == nil && got != s.sum {
		err = fmt.Errorf("site %s: the tree's hash is %s, and the original's %s", site, got, s.sum)
	}
	return err
}

// original runs a script in the tree that is copied, on this machine.
func (s *show) original(ctx context.Context, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", script)
	cmd.Dir = s.source
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w", s.source, script, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// raise has a VolumeAttributesClass change a volume that is in use.
func (s *show) raise(ctx context.Context) error {
	s.Title("A VolumeAttributesClass gives the claim's volume a third copy, while a pod uses it")
	if _, err := s.exec(ctx, "a", "at-a", "echo before > /results/f; sync"); err != nil {
		return err
	}
	volume, err := s.kubectl(ctx, "a", "get", "pvc/results", "-o", "jsonpath={.spec.volumeName}")
	if err != nil {
		return err
	}
	handle, err := s.kubectl(ctx, "a", "get", "pv/"+volume, "-o", "jsonpath={.spec.csi.volumeHandle}")
	if err != nil {
		return err
	}
	content := "gvc/" + strings.TrimPrefix(handle, installed.Federation+"/")
	before, err := s.kubectl(ctx, "a", "get", content, "-o", "jsonpath={.status.copies}")
	if err != nil {
		return err
	}
	fmt.Println("  kubectl patch pvc results -p '{\"spec\":{\"volumeAttributesClassName\":\"safer\"}}'")
	if _, err := s.kubectl(ctx, "a", "patch", "pvc/results", "-p", `{"spec":{"volumeAttributesClassName":"safer"}}`); err != nil {
		return err
	}
	if err := s.wait(ctx, "a", content, "jsonpath={.status.copies}=3/3"); err != nil {
		return err
	}
	if _, err := s.exec(ctx, "a", "at-a", "echo after >> /results/f; sync; cat /results/f"); err != nil {
		return err
	}
	s.Fact("a VolumeAttributesClass took a volume in use from copies %s to 3/3", before)
	return s.table(ctx, "a")
}

// lose takes site a away while a pod at b writes.
func (s *show) lose(ctx context.Context) error {
	s.Title("20 ms between the sites; a pod at b writes and fsyncs; site a is lost: cluster, gateway, store, registry member")
	for _, site := range s.Names() {
		if err := s.Stage.SetLink(ctx, site, stage.Link{Delay: 10 * time.Millisecond}); err != nil {
			return err
		}
	}
	if _, err := s.exec(ctx, "b", "at-b",
		"setsid sh -c 'guesttool write /data/lines /tmp/record /tmp/stop >/tmp/said 2>&1; echo $? >/tmp/code' >/dev/null 2>&1 "+
			"&"); err != nil {
		return err
	}
	before, err := s.lines(ctx, 30)
	if err != nil {
		return err
	}
	s.Lose("a")
	lost := time.Now()
	if _, err := s.lines(ctx, before+30); err != nil {
		return err
	}
	went := time.Since(lost)
	if _, err := s.exec(ctx, "b", "at-b",
		"touch /tmp/stop; while [ ! -e /tmp/code ]; do sleep 0.2; done; cat /tmp/said; [ $(cat /tmp/code) = 0 ] && guesttool verify "+
			"/data/lines /tmp/record"); err != nil {
		return err
	}
	noted, err := s.lines(ctx, 0)
	if err != nil {
		return err
	}
	s.Fact("site a lost; the pod at b wrote on %.1f s later, no error, no restart: %d noted lines, all there", went.Seconds(), noted)
	if err := s.verify(ctx, "b", "at-b"); err != nil {
		return err
	}
	s.Title("A replacement for the lost pod starts at b")
	if err := s.Site("b").Apply(ctx, s.pod("replacement", map[string]string{"/data": "from-a"})); err != nil {
		return err
	}
	if err := s.wait(ctx, "b", "pod/replacement", "condition=Ready"); err != nil {
		return err
	}
	if err := s.verify(ctx, "b", "replacement"); err != nil {
		return err
	}
	s.Fact("the replacement at b reads the tree without a: every hash is right")
	return s.table(ctx, "b")
}

// lines waits until the writer at b has noted n lines, and returns how many it has.
func (s *show) lines(ctx context.Context, n int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		out, err := s.exec(ctx, "b", "at-b", "wc -l < /tmp/record || echo 0")
		if err != nil {
			return 0, err
		}
		var got int
		if _, err := fmt.Sscan(out, &got); err != nil {
			return 0, err
		}
		if got >= n {
			return got, nil
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// comeBack starts site a again.
func (s *show) comeBack(ctx context.Context) error {
	s.Title("Site a comes back")
	back := time.Now()
	if err := s.Return(ctx, "a"); err != nil {
		return err
	}
	if err := s.wait(ctx, "a", "gv/shared", "jsonpath={.status.copies}=3/3"); err != nil {
		return err
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		got, err := s.exec(ctx, "a", "at-a", "wc -l < /data/lines")
		if err == nil {
			s.Fact("site a back; %.0f s later its pod reads what b wrote without it: %s lines", time.Since(back).Seconds(), got)
			break
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return err
		}
	}
	return s.table(ctx, "a")
}
