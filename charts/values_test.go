// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestLint(t *testing.T) {
	for _, e := range examples(t) {
		stdout, stderr, err := run(t, append([]string{"lint", "--strict", "--kube-version", kubeVersion, "weir"}, e.args...)...)
		if err != nil || strings.Contains(stdout+stderr, "[WARNING]") || strings.Contains(stdout+stderr, "problem(s)") {
			t.Errorf("%s: helm lint: %v\n%s%s", e.name, err, stdout, stderr)
		}
	}
}

// Each wrong value is reported by its name, with what to do.
func TestRefusals(t *testing.T) {
	trial := trial()
	out := []string{"-f", "weir/ci/cert-manager-values.yaml"}
	for _, c := range []struct {
		name   string
		args   []string
		wanted []string
	}{
		{"nothing", nil, []string{"federation: missing", "organization: missing", "site.name: missing", "registry.endpoints: missing",
			"gateway.address: missing", "image.registry: missing", "make images PUSH=", "csi.sidecarRegistry: missing"}},
		{"no images", []string{"-f", "weir/ci/trial-values.yaml"}, []string{"image.registry: missing", "csi.sidecarRegistry: missing",
			"sig-storage/csi-provisioner, sig-storage/csi-attacher, sig-storage/csi-resizer", "csi.attacher.image.registry",
			"bundled.registry.image.registry: missing", "bundled.store.image.registry: missing", "imageRegistry"}},
		{"one sidecar", []string{"-f", "weir/ci/trial-values.yaml", "-f", "weir/ci/exposed-trial-values.yaml", "--set",
			"csi.resizer.image.registry="}, []string{"csi.sidecarRegistry: missing", "which has sig-storage/csi-resizer;"}},
		{"health monitor", []string{"-f", "weir/ci/exposed-trial-values.yaml", "--set", "csi.healthMonitor.enabled=true"},
			[]string{"csi.sidecarRegistry: missing", "csi.healthMonitor.image.registry"}},
		{"snapshotter", []string{"-f", "weir/ci/exposed-trial-values.yaml", "--set", "snapshots.enabled=true"},
			[]string{"csi.sidecarRegistry: missing", "which has sig-storage/csi-snapshotter;", "csi.snapshotter.image.registry"}},
		{"snapshot controller", []string{"-f", "weir/ci/exposed-trial-values.yaml", "--set", "snapshots.controller.enabled=true"},
			[]string{"snapshots.controller.image.registry", "snapshots.controller.enabled: snapshots.enabled is false"}},
		{"policy of snapshots", append(trial, "--set", "snapshots.class.deletionPolicy=Keep"), []string{"/snapshots/class/deletionPolicy"}},
		{"prefix with a scheme", append(trial, "--set", "imageRegistry=https://images.example.org"), []string{"/imageRegistry"}},
		{"digest", append(trial, "--set", "image.digest=latest"), []string{"/image/digest"}},
		{"unknown", append(trial, "--set", "gatway.address=x"), []string{"gatway"}},
		{"unknown deep", append(trial, "--set", "gateway.pool.siez=1Gi"), []string{"/gateway/pool", "siez"}},
		{"form", append(trial, "--set", "site.name=A_b"), []string{"/site/name"}},
		{"long", append(trial, "--set", "site.name="+strings.Repeat("a", 49)), []string{"/site/name"}},
		{"amount", append(trial, "--set", "gateway.pool.size=lots"), []string{"/gateway/pool/size"}},
		{"choice", append(trial, "--set", "gateway.expose=Ingress"), []string{"/gateway/expose", "HostNetwork"}},
		{"port", append(trial, "--set", "gateway.address=10.0.0.1:7001"), []string{"/gateway/address"}},
		{"key", append(trial, "--set", "certificates.provided.ca=secret"), []string{"/certificates/provided/ca"}},
		{"connections", append(trial, "--set", "csi.node.nconnect=17"), []string{"/csi/node/nconnect"}},
		{"TLS or not", append(trial, "--set", "csi.node.tls=maybe"), []string{"/csi/node/tls"}},
		{"a name with a port", append(trial, "--set", "csi.node.tlsName=gateway:2049"), []string{"/csi/node/tlsName"}},
		{"two registries", append(trial, "--set", "registry.endpoints={https://10.0.0.1:2379}"),
			[]string{"bundled.registry.enabled: registry.endpoints is there too"}},
		{"bundled registry, other certificates", append(trial, "--set", "certificates.mode=certManager"),
			[]string{"certificates.mode: certManager"}},
		{"bundled registry, no hosts", append(trial, "--set", "bundled.registry.expose=NodePort"),
			[]string{"bundled.registry.hosts: missing"}},
		{"metrics that are blocked", append(trial, "--set", "metrics.serviceMonitors.create=true"),
			[]string{"networkPolicies.metricsFrom: missing", "kubernetes.io/metadata.name: monitoring"}},
		{"two stores", append(trial, "--set", "store.endpoint=https://s3.example.org"),
			[]string{"bundled.store.enabled: store.endpoint is there too"}},
		{"half a store", append(trial, "--set", "bundled.store.enabled=false"), []string{"store.endpoint: missing"}},
		{"no bucket", append(trial, "--set", "store.bucket="), []string{"store.bucket: missing"}},
		{"no secret", append(trial, "--set", "store.secretKey="), []string{"store.secretKey: missing"}},
		{"two secrets", append(trial, "--set", "store.existingSecret=x"), []string{"store.existingSecret: store.secretKey is there too"}},
		{"no address", append(trial, "--set", "gateway.expose=LoadBalancer"), []string{"gateway.address: missing", "LoadBalancer"}},
		{"address of a node", append(trial, "--set", "gateway.expose=HostNetwork"),
			[]string{"gateway.address: missing", "gateway.nodeSelector"}},
		{"address of a Service", append(out, "--set", "gateway.expose=ClusterIP,gateway.address="),
			[]string{"gateway.service.clusterIP: missing"}},
		{"folder of which node", append(trial, "--set", "gateway.pool.hostPath=/srv"), []string{"gateway.nodeSelector: missing"}},
		{"dataset of which node", append(trial, "--set", "gateway.pool.zfs.dataset=tank/weir,gateway.pool.hostPath=/srv"),
			[]string{"gateway.nodeSelector: missing: with gateway.pool.zfs", "gateway.pool.hostPath: /srv"}},
		{"folder of which node, of another pool", append(trial, "--set", "gateway.pools[0].name=fast,gateway.pools[0].size=1Gi,"+
			"gateway.pools[0].hostPath=/srv"), []string{"gateway.nodeSelector: missing: with gateway.pools[0]"}},
		{"pools of one name", append(trial, "--set", "gateway.pools[0].name=main,gateway.pools[0].size=1Gi,"+
			"gateway.pools[0].claim.size=2Gi"), []string{"gateway.pools[0].name: main"}},
		{"what is another pool", append(trial, "--set", "gateway.pools[0].name=fast,gateway.pools[0].size=1Gi"),
			[]string{"gateway.pools[0]: write one of hostPath, zfs.dataset and claim.size"}},
		{"another pool without a size", append(trial, "--set", "gateway.pools[0].name=fast"), []string{"/gateway/pools/0", "size"}},
		{"a whole ZFS pool", append(trial, "--set", "gateway.pool.zfs.dataset=tank"), []string{"/gateway/pool/zfs/dataset"}},
		{"devices of which pool", append(trial, "--set", "gateway.pool.zfs.devices.log={/dev/sdc}"),
			[]string{"gateway.pool.zfs.dataset: missing", "gateway.pool.zfs.devices.data: missing"}},
		{"a layout that nobody knows", append(trial, "--set", "gateway.pool.zfs.devices.layout=RAID5"),
			[]string{"/gateway/pool/zfs/devices/layout", "Raidz"}},
		{"no certificates", append(out, "--set", "certificates.mode=provided"),
			[]string{"certificates.provided.ca: missing", "certificates.provided.csiNode: cert or key missing", "ams-csi-node.crt"}},
		{"another site's certificates", []string{"-f", "weir/ci/join-values.yaml", "-f", certificates(t), "--set",
			"site.name=ams,organization=SURF,federation=prod"}, []string{
			"certificates.provided.issuedFor.site: utr: site.name is ams",
			"issuedFor.organization: Universiteit Utrecht: organization is SURF", "issuedFor.federation: demo: federation is prod",
			"issuedFor.gateway: utr-0: gateway.name is ams-0"}},
		{"unknown certificate", []string{"-f", "weir/ci/join-values.yaml", "-f", certificates(t), "--set",
			"certificates.provided.registry.cert="}, []string{"/certificates/provided", "registry"}},
		{"label with a blank", append(trial, "--set", "site.labels.room=server room"), []string{"/site/labels/room"}},
		{"a folder for a key that nobody seals", append(trial, "--set", "siteKey.kms.hostPath=/srv/key"),
			[]string{"siteKey.kms.socket: missing"}},
		{"a folder for a key of which node", append(trial, "--set", "siteKey.kms.socket=/run/kms/s.sock,siteKey.kms.hostPath=/srv/key"),
			[]string{"gateway.nodeSelector: missing: with siteKey.kms.hostPath"}},
		{"a socket by URL", append(trial, "--set", "siteKey.kms.socket=unix:///run/kms/s.sock"), []string{"/siteKey/kms/socket"}},
		{"a socket in the root", append(trial, "--set", "siteKey.kms.socket=/s.sock"), []string{"/siteKey/kms/socket"}},
		{"default class of its key", append(trial, "--set", "storageClass.isDefault=true,siteKey.kms.socket=/run/kms/s.sock"),
			[]string{"siteKey.kms.claim.storageClassName"}},
		{"default class of its own pool", append(trial, "--set", "storageClass.isDefault=true,bundled.store.storageClassName=weir"),
			[]string{"gateway.pool.claim.storageClassName: \"\": with storageClass.isDefault", "bundled.registry.storageClassName",
				"bundled.store.storageClassName: \"weir\""}},
		{"room that nobody reaches", append(out, "--set", "lending.enabled=true,store.endpoint=,store.bucket=,store.accessKey=,"+
			"store.existingSecret=,store.secretKey="),
			[]string{"lending.address: missing", "lending.room.claim.size: missing"}},
		{"no policy", append(out, "--set", "storageClass.policy="), []string{"storageClass.policy: missing"}},
	} {
		_, stderr, err := run(t, append([]string{"template", "weir", "weir", "--kube-version", kubeVersion}, c.args...)...)
		if err == nil {
			t.Errorf("%s: no error", c.name)
		}
		for _, want := range c.wanted {
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: the message lacks %q:\n%s", c.name, want, stderr)
			}
		}
	}
}

// auto takes cert-manager where it is, but never for a trial's own registry.
func TestAuto(t *testing.T) {
	has := []string{"--api-versions", "cert-manager.io/v1/Certificate"}
	auto := []string{"-f", "weir/ci/cert-manager-values.yaml", "--set", "certificates.mode=auto"}
	for _, c := range []struct {
		name string
		args []string
		want int
	}{
		{"without", auto, 0},
		{"with", append(auto, has...), 5},
		{"with its issuer", slices.Concat(auto, has,
			[]string{"--set", "certificates.certManager.issuer.name=weir,certificates.certManager.issuer.kind=ClusterIssuer"}), 4},
		{"trial", slices.Concat(has, trial()), 0},
	} {
		if got := len(of[certificate](render(t, c.args...))); got != c.want {
			t.Errorf("%s: %d certificates of cert-manager, want %d", c.name, got, c.want)
		}
	}
}

// How other sites reach the gateway, by the way it is exposed.
func TestExpose(t *testing.T) {
	for name, want := range map[string]struct {
		address  string
		host     bool
		services int
	}{
		"join":          {"203.0.113.20:7001", true, 1},
		"cert-manager":  {"gateway.ams.example.org:30701", false, 2},
		"load-balancer": {"[2001:db8::20]:7001", false, 2},
		"trial":         {"$(WEIR_GATEWAY_SERVICE_HOST):7001", false, 1},
	} {
		for _, e := range examples(t) {
			if e.name != name {
				continue
			}
			all := render(t, e.args...)
			sets := of[appsv1.StatefulSet](all)
			i := slices.IndexFunc(sets, func(s *appsv1.StatefulSet) bool { return s.Name == "weir-gateway" })
			pod := sets[i].Spec.Template.Spec
			if flag := "--advertise-grpc=" + want.address; pod.HostNetwork != want.host || !slices.Contains(pod.Containers[0].Args, flag) {
				t.Errorf("%s: host's network %v, arguments %q; want %v, %s", name, pod.HostNetwork, pod.Containers[0].Args, want.host, flag)
			}
			n := 0
			for _, s := range of[corev1.Service](all) {
				if s.Spec.Selector["app.kubernetes.io/component"] == "gateway" && s.Labels["weir.dev/metrics"] == "" {
					n++
				}
			}
			if n != want.services {
				t.Errorf("%s: %d Services of the gateway, want %d", name, n, want.services)
			}
		}
	}
}

// The room that a site lends is on a claim, or in the site's store, and the operator tells guests
// where.
func TestLending(t *testing.T) {
	for room, flags := range map[string][]string{
		"5Ti": {"--folder=/var/lib/weir/room/objects"},
		"":    {"--config=/etc/weir/gateway.yaml", "--store-endpoint=http://$(WEIR_STORE_SERVICE_HOST):7070"},
	} {
		all := render(t, trial("--set", "lending.enabled=true,lending.address=192.0.2.20,lending.room.claim.size="+room)...)
		sets, claims := of[appsv1.StatefulSet](all), of[corev1.PersistentVolumeClaim](all)
		i := slices.IndexFunc(sets, func(s *appsv1.StatefulSet) bool { return s.Name == "weir-lending" })
		if i < 0 {
			t.Fatalf("room %q: no store is there", room)
		}
		args := sets[i].Spec.Template.Spec.Containers[0].Args
		for _, f := range flags {
			if !slices.Contains(args, f) {
				t.Errorf("room %q: arguments %q lack %s", room, args, f)
			}
		}
		claimed := slices.ContainsFunc(claims, func(c *corev1.PersistentVolumeClaim) bool { return c.Name == "weir-lending-room" })
		if claimed != (room != "") {
			t.Errorf("room %q: a claim for it is there: %v", room, claimed)
		}
		for _, d := range of[appsv1.Deployment](all) {
			if d.Name == "weir-operator" && !slices.Contains(d.Spec.Template.Spec.Containers[0].Args,
				"--lent-store=https://192.0.2.20:30705") {
				t.Errorf("the operator's arguments are %q", d.Spec.Template.Spec.Containers[0].Args)
			}
		}
	}
	for _, s := range of[appsv1.StatefulSet](render(t, trial()...)) {
		if s.Name == "weir-lending" {
			t.Error("a site that lends nothing runs a store for others")
		}
	}
}

// Notes lead to the first volume.
func TestNotes(t *testing.T) {
	for _, e := range examples(t) {
		out, stderr, err := run(t, append([]string{"install", "weir", "weir", "--namespace", namespace, "--dry-run=client"}, e.args...)...)
		_, notes, found := strings.Cut(out, "\nNOTES:\n")
		if err != nil || !found {
			t.Errorf("%s: helm install: %v: %s", e.name, err, stderr)
			continue
		}
		key := "get secret weir-site-key"
		if e.name == "kms" {
			key = "exec weir-gateway-0 -- weir gateway sealed-key > ams-site.key.sealed"
		}
		for _, want := range []string{"kind: GeoVolume", key, "kubectl get sites"} {
			if !strings.Contains(notes, want) {
				t.Errorf("%s: the notes lack %q:\n%s", e.name, want, notes)
			}
		}
		if strings.Contains(notes, "<no value>") {
			t.Errorf("%s: the notes lack a value:\n%s", e.name, notes)
		}
	}
}

// Each value is described: by a comment above it, or above the group of which it is a short form.
func TestValuesAreDescribed(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("weir", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	leaf := regexp.MustCompile(`^( *)([A-Za-z]+):( .+)$`)
	lines := strings.Split(string(text), "\n")
	n := 0
	for i, line := range lines {
		m := leaf.FindStringSubmatch(line)
		if m == nil || m[2] == "requests" || m[2] == "limits" {
			continue
		}
		n++
		if i == 0 || !strings.HasPrefix(strings.TrimSpace(lines[i-1]), "#") {
			t.Errorf("values.yaml:%d: %s has no comment", i+1, m[2])
		}
	}
	if n < 80 {
		t.Errorf("found %d values: the search misses most", n)
	}
}
