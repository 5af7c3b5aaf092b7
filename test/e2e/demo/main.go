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
	*installed.Show
	sum  string // hash of its files' hashes
	slog string // how much was written to the SLOG at a before there was load
}

func demo(ctx context.Context, p *playbill.Play, dir string) (err error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	s := &show{Show: &installed.Show{Play: p, Source: filepath.Join(strings.TrimSpace(string(root)), "src")}}
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
	if s.Federated, err = installed.Install(ctx, clusters, installed.Config{},
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
	if err := s.Apply(ctx, "a", objects); err != nil {
		return err
	}
	if err := s.Wait(ctx, "a", "gv/shared", "condition=Ready"); err != nil {
		return err
	}
	if err := s.Table(ctx, "a", "gv,gvc,sites"); err != nil {
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
		at, err := s.Kubectl(ctx, "a", "get", "cachepool/a-0", "-o", "jsonpath={.status.asOf}")
		if err != nil {
			return "", err
		}
		if t, err := time.Parse(time.RFC3339, at); err == nil && !t.Before(since.Truncate(time.Second)) || time.Since(since) > time.Minute {
			break
		}
		time.Sleep(time.Second)
	}
	out, err := s.Kubectl(ctx, "a", "get", "cachepools", "-o", "wide")
	fmt.Printf("  kubectl get cachepools -o wide, at a, %s\n%s", when, playbill.Indent(out))
	if err != nil {
		return "", err
	}
	return s.Kubectl(ctx, "a", "get", "cachepool/a-0", "-o", `jsonpath={.status.classes[?(@.class=="Log")].written}`)
}

// files lists the files of the tree, sums hashes their names and contents.
const (
	files = "find . -path ./cmd -prune -o -type f -print"
	sums  = files + " | LC_ALL=C sort | xargs sha256sum | sha256sum"
)

// share has a pod at each of two sites use the volume.
func (s *show) share(ctx context.Context) error {
	s.Title("A pod at a copies the Go standard library's source tree into it")
	if err := s.Apply(ctx, "a", s.Pod("at-a", map[string]string{"/data": "shared", "/results": "results"})); err != nil {
		return err
	}
	if err := s.Wait(ctx, "a", "pod/at-a", "condition=Ready"); err != nil {
		return err
	}
	mount, err := s.Exec(ctx, "a", "at-a", "grep ' /data ' /proc/mounts")
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
	_, err = s.Exec(ctx, "a", "at-a", `set -e; cd /source; mkdir /data/go; ls | grep -vx cmd | xargs -P 8 -I {} cp -R {} /data/go; sync`)
	if err != nil {
		return err
	}
	took := time.Since(begin)
	s.Title("b imports the volume, by its grant, and a pod there reads the tree")
	if err := s.Apply(ctx, "b", imported); err != nil {
		return err
	}
	if err := s.Wait(ctx, "b", "gv/from-a", "condition=Ready"); err != nil {
		return err
	}
	if err := s.Apply(ctx, "b", s.Pod("at-b", map[string]string{"/data": "from-a"})); err != nil {
		return err
	}
	if err := s.Wait(ctx, "b", "pod/at-b", "condition=Ready"); err != nil {
		return err
	}
	if err := s.verify(ctx, "b", "at-b"); err != nil {
		return err
	}
	s.Fact("%s files of the Go library copied by a pod at a in %.0f s; read by a pod at b, every hash is right", count, took.Seconds())
	if err := s.Table(ctx, "b", "gv,gvc,sites"); err != nil {
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
	got, err := s.Exec(ctx, site, pod, "cd /data/go && "+sums)
	if err == nil && got != s.sum {
		err = fmt.Errorf("site %s: the tree's hash is %s, and the original's %s", site, got, s.sum)
	}
	return err
}

// original runs a script in the tree that is copied, on this machine.
func (s *show) original(ctx context.Context, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", script)
	cmd.Dir = s.Source
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w", s.Source, script, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// raise has a VolumeAttributesClass change a volume that is in use.
func (s *show) raise(ctx context.Context) error {
	s.Title("A VolumeAttributesClass gives the claim's volume a third copy, while a pod uses it")
	if _, err := s.Exec(ctx, "a", "at-a", "echo before > /results/f; sync"); err != nil {
		return err
	}
	volume, err := s.Kubectl(ctx, "a", "get", "pvc/results", "-o", "jsonpath={.spec.volumeName}")
	if err != nil {
		return err
	}
	handle, err := s.Kubectl(ctx, "a", "get", "pv/"+volume, "-o", "jsonpath={.spec.csi.volumeHandle}")
	if err != nil {
		return err
	}
	content := "gvc/" + strings.TrimPrefix(handle, installed.Federation+"/")
	before, err := s.Kubectl(ctx, "a", "get", content, "-o", "jsonpath={.status.copies}")
	if err != nil {
		return err
	}
	fmt.Println("  kubectl patch pvc results -p '{\"spec\":{\"volumeAttributesClassName\":\"safer\"}}'")
	if _, err := s.Kubectl(ctx, "a", "patch", "pvc/results", "-p", `{"spec":{"volumeAttributesClassName":"safer"}}`); err != nil {
		return err
	}
	if err := s.Wait(ctx, "a", content, "jsonpath={.status.copies}=3/3"); err != nil {
		return err
	}
	if _, err := s.Exec(ctx, "a", "at-a", "echo after >> /results/f; sync; cat /results/f"); err != nil {
		return err
	}
	s.Fact("a VolumeAttributesClass took a volume in use from copies %s to 3/3", before)
	return s.Table(ctx, "a", "gv,gvc,sites")
}

// lose takes site a away while a pod at b writes.
func (s *show) lose(ctx context.Context) error {
	s.Title("20 ms between the sites; a pod at b writes and fsyncs; site a is lost: cluster, gateway, store, registry member")
	for _, site := range s.Names() {
		if err := s.Stage.SetLink(ctx, site, stage.Link{Delay: 10 * time.Millisecond}); err != nil {
			return err
		}
	}
	if err := s.Write(ctx, "b", "at-b", "/data/lines", "0s"); err != nil {
		return err
	}
	before, err := s.Lines(ctx, "b", "at-b", 30)
	if err != nil {
		return err
	}
	s.Lose("a")
	lost := time.Now()
	if _, err := s.Lines(ctx, "b", "at-b", before+30); err != nil {
		return err
	}
	went := time.Since(lost)
	if err := s.EndWriting(ctx, "b", "at-b", "/data/lines"); err != nil {
		return err
	}
	noted, err := s.Lines(ctx, "b", "at-b", 0)
	if err != nil {
		return err
	}
	s.Fact("site a lost; the pod at b wrote on %.1f s later, no error, no restart: %d noted lines, all there", went.Seconds(), noted)
	if err := s.verify(ctx, "b", "at-b"); err != nil {
		return err
	}
	s.Title("A replacement for the lost pod starts at b")
	if err := s.Site("b").Apply(ctx, s.Pod("replacement", map[string]string{"/data": "from-a"})); err != nil {
		return err
	}
	if err := s.Wait(ctx, "b", "pod/replacement", "condition=Ready"); err != nil {
		return err
	}
	if err := s.verify(ctx, "b", "replacement"); err != nil {
		return err
	}
	s.Fact("the replacement at b reads the tree without a: every hash is right")
	return s.Table(ctx, "b", "gv,gvc,sites")
}

// comeBack starts site a again.
func (s *show) comeBack(ctx context.Context) error {
	s.Title("Site a comes back")
	back := time.Now()
	if err := s.Return(ctx, "a"); err != nil {
		return err
	}
	if err := s.Wait(ctx, "a", "gv/shared", "jsonpath={.status.copies}=3/3"); err != nil {
		return err
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		got, err := s.Exec(ctx, "a", "at-a", "wc -l < /data/lines")
		if err == nil {
			s.Fact("site a back; %.0f s later its pod reads what b wrote without it: %s lines", time.Since(back).Seconds(), got)
			break
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return err
		}
	}
	return s.Table(ctx, "a", "gv,gvc,sites")
}
