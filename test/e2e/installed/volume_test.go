// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/test/e2e/kube"
)

// hang bounds each step; nothing here is expected to take it.
const hang = 3 * time.Minute

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	return ctx
}

func newFederated(t *testing.T, cfg kube.Config) *Federated {
	t.Helper()
	c := kube.Test(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 2*hang)
	defer cancel()
	f, err := Install(ctx, c, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// kubectl runs a command that must succeed.
func (f *Federated) kubectl(t *testing.T, site string, args ...string) string {
	t.Helper()
	out, err := f.Site(site).Kubectl(bounded(t), args...)
	if err != nil {
		t.Fatalf("site %s: kubectl %s: %v: %s", site, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

func (f *Federated) apply(t *testing.T, site, yaml string) {
	t.Helper()
	if err := f.Site(site).Apply(bounded(t), yaml); err != nil {
		t.Fatalf("site %s: %v", site, err)
	}
}

// exec runs a script in a pod; it must succeed.
func (f *Federated) exec(t *testing.T, site, pod, script string) string {
	t.Helper()
	out, err := f.Site(site).Exec(bounded(t), pod, "sh", "-c", script)
	if err != nil {
		t.Fatalf("site %s, pod %s: %s: %v: %s", site, pod, script, err, out)
	}
	return strings.TrimSpace(out)
}

// pod is a manifest of a pod with a claim at /data, on the guest of its site.
func pod(name, claim, namespace string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {e2e.weir.dev/node: guest}
  containers:
  - {name: app, image: %s, imagePullPolicy: Never, volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]
`, name, namespace, kube.ImageName("app"), claim)
}

const policy = `apiVersion: storage.weir.dev/v1alpha1
kind: VolumePolicy
metadata: {name: safe}
spec: {replication: {copies: 2}, durability: {acknowledge: Sites, sites: 2}}
`

// TestLifeOfAVolume walks through what people do with volumes, up to the loss of a site: one installation, because that is the dear part.
func TestLifeOfAVolume(t *testing.T) {
	f := newFederated(t, kube.Config{Sites: []string{"a", "b", "c"}})
	for _, step := range []struct {
		name string
		run  func(*testing.T, *Federated)
	}{
		{"two sites share a volume", testShared},
		{"a storage class makes volumes", testStorageClass},
		{"who was not granted it", testNotGranted},
		{"a stranger's namespace", testStranger},
		{"copies are raised", testRaised},
		{"a site is lost", testLost},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, f) }) {
			return // what follows would only tell the same again
		}
	}
}

// testShared applies a volume at a, imports it at b, and has pods at both use it.
func testShared(t *testing.T, f *Federated) {
	f.apply(t, "a", policy+`---
apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: shared, namespace: default}
spec: {size: 1Gi, policy: safe, grants: [{site: b, namespace: default}], home: {preferredSites: [a]}}
`)
	f.kubectl(t, "a", "wait", "--for=condition=Ready", "--timeout=60s", "gv/shared")
	f.apply(t, "a", pod("at-a", "shared", "default"))
	f.kubectl(t, "a", "wait", "--for=condition=Ready", "--timeout=120s", "pod/at-a")
	mounts := f.exec(t, "a", "at-a", "echo hello from a > /data/greeting; sync; grep ' /data ' /proc/mounts")
	t.Log(mounts)
	if !strings.Contains(mounts, " nfs4 ") || !strings.Contains(mounts, "vers=4.") {
		t.Errorf("the pod's mount is %s", mounts)
	}

	f.apply(t, "b", imported)
	f.kubectl(t, "b", "wait", "--for=condition=Ready", "--timeout=60s", "gv/from-a")
	f.apply(t, "b", pod("at-b", "from-a", "default"))
	f.kubectl(t, "b", "wait", "--for=condition=Ready", "--timeout=120s", "pod/at-b")
	if got := f.exec(t, "b", "at-b", "cat /data/greeting"); got != "hello from a" {
		t.Errorf("the pod at b reads %q", got)
	}
	f.exec(t, "b", "at-b", "echo hello from b > /data/answer; sync")
	if got := f.exec(t, "a", "at-a", "cat /data/answer"); got != "hello from b" {
		t.Errorf("the pod at a reads %q", got)
	}
	f.show(t)
}

const imported = `apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: from-a, namespace: default}
spec: {import: {volume: default.shared}}
`

// show logs what a person sees at each site that is there.
func (f *Federated) show(t *testing.T) {
	t.Helper()
	for _, name := range f.Names() {
		if f.Site(name).HostNode() != nil {
			t.Logf("site %s:\n%s", name, f.kubectl(t, name, "get", "gv,gvc,sites", "-A", "-o", "wide"))
		}
	}
}

// testStorageClass has csi-provisioner make a volume for a claim, a pod use it, grows it, and deletes it.
func testStorageClass(t *testing.T, f *Federated) {
	f.apply(t, "a", `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: dynamic, namespace: default}
spec: {accessModes: [ReadWriteMany], storageClassName: weir, resources: {requests: {storage: 512Mi}}}
---
`+pod("of-class", "dynamic", "default"))
	f.kubectl(t, "a", "wait", "--for=condition=Ready", "--timeout=120s", "pod/of-class")
	f.exec(t, "a", "of-class", "echo kept > /data/f; sync")
	volume := f.kubectl(t, "a", "get", "pvc/dynamic", "-o", "jsonpath={.spec.volumeName}")
	handle := f.kubectl(t, "a", "get", "pv/"+volume, "-o", "jsonpath={.spec.csi.volumeHandle}")
	f.kubectl(t, "a", "patch", "pvc/dynamic", "-p", `{"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`)
	f.kubectl(t, "a", "wait", "--for=jsonpath={.status.capacity.storage}=1Gi", "--timeout=60s", "pvc/dynamic")
	if got := f.exec(t, "a", "of-class", "df -P -m /data | tail -n 1 | awk '{print $2}'; cat /data/f"); !strings.HasPrefix(got, "1024") || !strings.HasSuffix(got, "kept") {
		t.Errorf("after it grew, the pod sees %q", got)
	}
	f.kubectl(t, "a", "delete", "pod/of-class", "--timeout=60s")
	f.kubectl(t, "a", "delete", "pvc/dynamic", "--timeout=60s")
	f.kubectl(t, "a", "wait", "--for=delete", "--timeout=60s", "pv/"+volume, "gvc/"+strings.TrimPrefix(handle, Federation+"/"))
}

// testNotGranted imports at a site that has no grant.
func testNotGranted(t *testing.T, f *Federated) {
	f.apply(t, "c", imported)
	f.kubectl(t, "c", "wait", "--for=jsonpath={.status.conditions[?(@.type==\"Ready\")].reason}=NotGranted", "--timeout=60s", "gv/from-a")
	t.Log(f.kubectl(t, "c", "get", "gv/from-a", "-o", "wide"))
	f.kubectl(t, "c", "delete", "gv/from-a", "--timeout=60s")
}

// testStranger makes a PersistentVolume by hand, for a claim in a namespace that has none on the volume.
func testStranger(t *testing.T, f *Federated) {
	handle := f.kubectl(t, "a", "get", "pv", "-l", "storage.weir.dev/volume", "-o", "jsonpath={.items[0].spec.csi.volumeHandle}")
	f.kubectl(t, "a", "create", "namespace", "stranger")
	f.apply(t, "a", fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: by-hand}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  persistentVolumeReclaimPolicy: Retain
  csi: {driver: csi.weir.dev, volumeHandle: %q}
  claimRef: {namespace: stranger, name: stolen}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: stolen, namespace: stranger}
spec: {accessModes: [ReadWriteMany], storageClassName: "", volumeName: by-hand, resources: {requests: {storage: 1Gi}}}
---
`, handle)+pod("thief", "stolen", "stranger"))
	said := f.until(t, "the thief is refused", func() (string, bool) {
		events := f.kubectl(t, "a", "get", "events", "-n", "stranger", "-o", "jsonpath={range .items[*]}{.reason}: {.message}{\"\\n\"}{end}")
		return events, strings.Contains(events, "FailedAttachVolume") || strings.Contains(events, "FailedMount")
	})
	t.Log(said)
	if !strings.Contains(said, "stranger") {
		t.Errorf("the refusal does not name the namespace: %s", said)
	}
	if phase := f.kubectl(t, "a", "get", "pod/thief", "-n", "stranger", "-o", "jsonpath={.status.phase}"); phase != "Pending" {
		t.Errorf("the thief is %s", phase)
	}
	if got := f.exec(t, "a", "at-a", "cat /data/answer"); got != "hello from b" {
		t.Errorf("the pod of the volume's own namespace reads %q", got)
	}
	f.kubectl(t, "a", "delete", "namespace/stranger", "pv/by-hand", "--timeout=100s")
}

// until asks until it has an answer.
func (f *Federated) until(t *testing.T, what string, ask func() (string, bool)) string {
	t.Helper()
	for end := time.Now().Add(hang); ; time.Sleep(time.Second) {
		got, ok := ask()
		if ok {
			return got
		}
		if time.Now().After(end) {
			t.Fatalf("%s: never; last: %s", what, got)
		}
	}
}

// testRaised has the policy want one more copy, while pods use the volume.
func testRaised(t *testing.T, f *Federated) {
	f.kubectl(t, "a", "patch", "vp/safe", "--type=merge", "-p", `{"spec":{"replication":{"copies":3}}}`)
	f.kubectl(t, "a", "wait", "--for=jsonpath={.status.copies}=3/3", "--timeout=100s", "gv/shared")
	f.exec(t, "a", "at-a", "echo more > /data/more; sync")
	f.show(t)
}

// testLost loses site a while the pod at b writes.
func testLost(t *testing.T, f *Federated) {
	f.exec(t, "b", "at-b", "setsid sh -c 'guesttool write /data/lines /tmp/record /tmp/stop >/tmp/said 2>&1; echo $? >/tmp/code' >/dev/null 2>&1 &")
	noted := func() (n int) {
		_, _ = fmt.Sscan(f.exec(t, "b", "at-b", "wc -l </tmp/record || echo 0"), &n)
		return n
	}
	f.until(t, "the pod at b writes", func() (string, bool) { n := noted(); return fmt.Sprint(n), n > 20 })
	f.Lose("a")
	before := noted()
	began := time.Now()
	f.until(t, "the pod at b goes on", func() (string, bool) { n := noted(); return fmt.Sprint(n), n > before+50 })
	t.Logf("the pod at b goes on %v after the loss of a", time.Since(began).Round(100*time.Millisecond))
	f.exec(t, "b", "at-b", "touch /tmp/stop")
	f.until(t, "the writer ends", func() (string, bool) {
		got := f.exec(t, "b", "at-b", "cat /tmp/code /tmp/said 2>/dev/null; true")
		return got, got != ""
	})
	t.Log(f.exec(t, "b", "at-b", "cat /tmp/code /tmp/said; test $(cat /tmp/code) = 0 && guesttool verify /data/lines /tmp/record && cat /data/greeting /data/answer /data/more"))

	f.apply(t, "b", pod("replacement", "from-a", "default"))
	f.kubectl(t, "b", "wait", "--for=condition=Ready", "--timeout=120s", "pod/replacement")
	if got := f.exec(t, "b", "replacement", "cat /data/greeting"); got != "hello from a" {
		t.Errorf("the replacement reads %q", got)
	}
	f.kubectl(t, "b", "wait", "--for=condition=Ready", "--timeout=60s", "gv/from-a")
	f.show(t)

	if err := f.Return(bounded(t), "a"); err != nil {
		t.Fatal(err)
	}
	f.until(t, "the volume is ready at a again, with all copies", func() (string, bool) {
		got, err := f.Site("a").Kubectl(bounded(t), "get", "gv/shared", "-o", "jsonpath={.status.conditions[?(@.type==\"Ready\")].reason} {.status.copies}")
		return got, err == nil && strings.TrimSpace(got) == "Ready 3/3"
	})
	f.until(t, "the pod at a reads what was written without it", func() (string, bool) {
		got, err := f.Site("a").Exec(bounded(t), "at-a", "sh", "-c", "tail -n 1 /data/lines; cat /data/answer")
		return got, err == nil && strings.HasSuffix(strings.TrimSpace(got), "hello from b")
	})
	f.show(t)
}
