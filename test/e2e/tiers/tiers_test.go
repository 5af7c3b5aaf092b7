// SPDX-License-Identifier: Apache-2.0

package tiers

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/caching"
	"github.com/weir-storage/weir/test/e2e/installed"
	"github.com/weir-storage/weir/test/e2e/kube"
)

// hang bounds each step; nothing here is expected to take it.
const hang = 3 * time.Minute

// site is the cluster.
type site struct {
	*testing.T
	*kube.Site
}

func (s site) step() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), hang)
	s.Cleanup(cancel)
	return ctx
}

func (s site) must(out string, err error) string {
	s.Helper()
	if err != nil {
		s.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(out)
}

func (s site) kubectl(args ...string) string {
	s.Helper()
	return s.must(s.Kubectl(s.step(), args...))
}

func (s site) host(script string) string {
	s.Helper()
	return s.must(s.HostNode().Output(s.step(), script))
}

// until waits for a condition of which nothing notifies, and returns how long that took.
func (s site) until(what string, holds func() (now string, ok bool)) time.Duration {
	s.Helper()
	for began := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		now, ok := holds()
		if ok {
			return time.Since(began)
		}
		if time.Since(began) > hang {
			s.Fatalf("it does not come true that %s: %s", what, now)
		}
	}
}

// condition returns one of the pool's conditions.
func (s site) condition(kind string) string {
	s.Helper()
	return s.kubectl("get", "cachepool/a-0", "-o", fmt.Sprintf("jsonpath={.status.conditions[?(@.type==%q)].status}", kind))
}

func (s site) becomes(kind, value string) time.Duration {
	s.Helper()
	return s.until(kind+" is "+value, func() (string, bool) { now := s.condition(kind); return now, now == value })
}

func TestPoolOfZFS(t *testing.T) {
	c := kube.Test(t, kube.Config{Sites: []string{"a"}, ZFS: []string{"a"}})
	ctx, cancel := context.WithTimeout(t.Context(), 2*hang)
	defer cancel()
	f, err := installed.Install(ctx, c, installed.Config{}, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	s := site{t, f.Site("a")}
	s.looksAtZFS()
	s.saysHowItIs()
	s.editedUnderLoad()
}

// saysHowItIs: the CachePool says how the ZFS pool is, and what is wrong with it.
func (s site) saysHowItIs() {
	s.becomes("Ready", "True")
	wide := s.kubectl("get", "cachepools", "-o", "wide")
	if !strings.Contains(wide, "ONLINE") || !strings.Contains(wide, "tank/weir") {
		s.Errorf("kubectl get cachepools -o wide:\n%s", wide)
	}
	s.until("all classes of devices are told", func() (string, bool) {
		classes := s.kubectl("get", "cachepool/a-0", "-o", "jsonpath={.status.classes[*].class}")
		return classes, classes == "Data Log Cache"
	})
	s.until("the other pool is ready", func() (string, bool) {
		now := s.kubectl("get", "cachepools", "-o",
			`jsonpath={range .items[*]}{.metadata.name}={.metadata.labels.tier}={.status.conditions[?(@.type=="Ready")].status} {end}`)
		return now, now == "a-0==True a-0-plain=plain=True"
	})
	s.becomes("SlogMissing", "False")
	s.host("zpool remove tank " + kube.Disks.Log)
	s.Logf("that the log device is gone was told after %v", s.becomes("SlogMissing", "True").Round(100*time.Millisecond))
	s.until("what to do is said", func() (string, bool) {
		said := s.kubectl("get", "cachepool/a-0", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].message}`)
		return said, strings.Contains(said, "spec.zfs.devices.log has 1, and ZFS pool tank has 0") &&
			strings.Contains(said, "zpool add tank log")
	})
	s.host("zpool add -f tank log " + kube.Disks.Log)
	s.becomes("SlogMissing", "False")
	s.becomes("Ready", "True")
}

const manifests = `apiVersion: storage.weir.dev/v1alpha1
kind: VolumePolicy
metadata: {name: here}
spec: {replication: {copies: 1}, durability: {acknowledge: Gateway}}
---
apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: edited, namespace: default}
spec: {size: 512Mi, policy: here}
---
apiVersion: v1
kind: Pod
metadata: {name: user, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {e2e.weir.dev/node: guest}
  containers:
  - {name: app, image: %s, imagePullPolicy: IfNotPresent, volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: edited}}]
---
`

// editedUnderLoad edits a volume's policy while fio writes and verifies it: what its gateway keeps
// of it, its pins, what ZFS does below, and which pool it is on. Each is in force at once.
func (s site) editedUnderLoad() {
	if err := s.Apply(s.step(), fmt.Sprintf(manifests, kube.ImageName("app"))); err != nil {
		s.Fatal(err)
	}
	s.kubectl("wait", "--for=condition=Ready", "--timeout=150s", "pod/user")
	uuid := s.kubectl("get", "geovolume/edited", "-o", "jsonpath={.status.volume}")
	guest := s.GuestNode()
	loadCtx, cancel := context.WithTimeout(s.Context(), 3*hang)
	defer cancel()
	type result struct {
		out string
		err error
	}
	fio := make(chan result, 1)
	go func() {
		out, err := guest.Output(loadCtx, `m=$(awk '$3 == "nfs4" && $2 ~ /globalmount/ {print $2; exit}' /proc/mounts)
[ -n "$m" ] || { cat /proc/mounts; exit 1; }
mkdir -p $m/fio
n=0
while [ ! -e /tmp/fio.stop ]; do
	fio --name=f$n --directory=$m/fio --ioengine=psync --rw=randwrite --bs=16k --size=4m --fsync=4 --verify=crc32c \
		--do_verify=1 --verify_fatal=1 --verify_state_save=0 --output=/tmp/fio.out --unlink=1 || { cat /tmp/fio.out; exit 1; }
	n=$((n + 1))
done
echo $n files`)
		fio <- result{out, err}
	}()
	defer func() { _, _ = guest.Output(s.step(), "touch /tmp/fio.stop") }() // also when something failed before
	edit := func(cache string) {
		s.Helper()
		s.kubectl("patch", "geovolume/edited", "--type", "merge", "-p", `{"spec": {"cache": `+cache+`}}`)
	}
	kept := func(what string, is func(caching.Volume) bool) {
		s.Helper()
		s.until(what, func() (string, bool) {
			out, err := s.Kubectl(s.step(), "exec", "-n", installed.Namespace, "weir-gateway-0", "--", "weir", "cache", "default.edited",
				"--site", "a", "-o", "json")
			var all []struct{ Volumes []caching.Volume }
			if err == nil {
				err = json.Unmarshal([]byte(out), &all)
			}
			if err != nil || len(all) != 1 || len(all[0].Volumes) != 1 {
				return fmt.Sprint(out, err), false
			}
			return fmt.Sprintf("%+v", all[0].Volumes[0]), is(all[0].Volumes[0])
		})
	}
	zfs := func(property, value string) {
		s.Helper()
		s.until(property+" is "+value, func() (string, bool) {
			now := s.host("zfs get -Hp -o value " + property + " tank/weir/volumes/" + uuid)
			return now, now == value
		})
	}
	time.Sleep(2 * time.Second) // under load
	edit(`{"size": "64Mi", "reserve": "8Mi", "memory": "16Mi"}`)
	kept("limit and reserve are in force", func(v caching.Volume) bool { return v.Limit == 64<<20 && v.Reserve == 8<<20 })
	edit(`{"size": "16Mi", "reserve": "1Mi", "pin": [{"path": "/fio"}], "l2arc": "None", "log": "Throughput", "arc": "Metadata", ` +
		`"prefetch": "File"}`)
	kept("limit and pins are in force", func(v caching.Volume) bool { return v.Limit == 16<<20 && v.Pins != nil })
	zfs("secondarycache", "none")
	zfs("primarycache", "metadata")
	zfs("logbias", "throughput")
	edit(`{"size": null, "reserve": null, "memory": null, "pin": null, "l2arc": "All", "log": "Latency", "arc": "All", "prefetch": null}`)
	kept("there is no limit and no pin any more", func(v caching.Volume) bool { return v.Limit == 0 && v.Pins == nil })
	zfs("secondarycache", "all")
	zfs("logbias", "latency")
	pool := func(name, dataset string) {
		s.Helper()
		kept("it is on pool "+name, func(v caching.Volume) bool { return v.Pool == name && v.Moves == nil })
		s.until("that it has a dataset is: "+dataset, func() (string, bool) {
			now := s.host("zfs list -H -o name tank/weir/volumes/" + uuid + " >/dev/null 2>&1 && echo yes || echo no")
			return now, now == dataset
		})
	}
	pool("main", "yes")
	edit(`{"pool": {"matchLabels": {"tier": "plain"}}}`)
	pool("plain", "no")
	edit("null")
	pool("main", "yes")
	s.must(guest.Output(s.step(), "touch /tmp/fio.stop"))
	select {
	case got := <-fio:
		if got.err != nil || !strings.HasSuffix(strings.TrimSpace(got.out), " files") {
			s.Fatalf("fio met an error: %v: %s", got.err, got.out)
		}
		s.Logf("the policy was edited three times and it moved to another pool and back under fio, which wrote and verified %s",
			strings.TrimSpace(got.out))
	case <-time.After(hang):
		s.Fatal("fio does not end")
	}
	s.kubectl("delete", "pod/user", "gv/edited", "--timeout=120s")
}
