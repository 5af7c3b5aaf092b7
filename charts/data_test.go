// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/pki"
)

const keep = "helm.sh/resource-policy"

// Definitions are what controller-gen wrote, and kept.
func TestDefinitions(t *testing.T) {
	files, err := filepath.Glob("../config/crd/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("list config/crd: %q, %v", files, err)
	}
	got := of[apiextensions.CustomResourceDefinition](render(t, trial()...))
	if len(got) != len(files) {
		t.Errorf("the chart has %d definitions and config/crd %d: run go run ./hack/crds", len(got), len(files))
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var want apiextensions.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &want); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		i := slices.IndexFunc(got, func(c *apiextensions.CustomResourceDefinition) bool { return c.Name == want.Name })
		if i < 0 {
			t.Errorf("the chart has no definition %s: run go run ./hack/crds", want.Name)
			continue
		}
		if got[i].Annotations[keep] != "keep" {
			t.Errorf("definition %s is not kept: removing it would remove all its objects", want.Name)
		}
		if !reflect.DeepEqual(got[i].Spec, want.Spec) {
			t.Errorf("definition %s is not that of %s: run go run ./hack/crds", want.Name, f)
		}
	}
}

// What stays when the release is uninstalled: all that data depends on, and nothing else.
func TestUninstallKeepsData(t *testing.T) {
	for name, want := range map[string][]string{
		"trial": {"PersistentVolumeClaim weir-gateway-pool", "PersistentVolumeClaim weir-registry", "PersistentVolumeClaim weir-store",
			"Secret weir-store", "Service weir-gateway", "Service weir-registry"},
		"stranger": {"PersistentVolumeClaim weir-gateway-pool", "Secret weir-csi-controller-tls", "Secret weir-csi-node-tls",
			"Secret weir-gateway-tls", "Secret weir-operator-tls", "Service weir-gateway"},
		"join": {"Secret weir-csi-controller-tls", "Secret weir-csi-node-tls", "Secret weir-gateway-tls",
			"Secret weir-operator-tls", "Service weir-gateway"},
		"pools": {"PersistentVolumeClaim weir-gateway-pool", "PersistentVolumeClaim weir-gateway-pool-spare", "Service weir-gateway"},
		"kms":   {"PersistentVolumeClaim weir-gateway-pool", "PersistentVolumeClaim weir-site-key", "Service weir-gateway"},
		"cert-manager": {"Certificate weir-authority", "Issuer weir-authority", "Issuer weir-selfsigned",
			"PersistentVolumeClaim weir-gateway-pool", "Service weir-gateway"},
	} {
		var got []string
		for _, e := range examples(t) {
			if e.name != name {
				continue
			}
			for _, o := range render(t, e.args...) {
				if _, definition := o.(*apiextensions.CustomResourceDefinition); !definition &&
					o.(metav1.Object).GetAnnotations()[keep] == "keep" {
					got = append(got, kindAndName(o))
				}
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: kept are %q, want %q", name, got, want)
		}
	}
}

// The objects that `weir setup` applies are what their kinds are.
func TestObjects(t *testing.T) {
	for _, e := range examples(t) {
		all := render(t, e.args...)
		i := slices.IndexFunc(of[corev1.ConfigMap](all), func(c *corev1.ConfigMap) bool { return c.Name == "weir-objects" })
		if i < 0 {
			t.Fatalf("%s: no ConfigMap weir-objects", e.name)
		}
		objects := decode(t, of[corev1.ConfigMap](all)[i].Data["objects.yaml"])
		sites, pools, policies := of[v1alpha1.Site](objects), of[v1alpha1.CachePool](objects), of[v1alpha1.VolumePolicy](objects)
		if len(sites) != 1 || sites[0].Name == "" || sites[0].Spec.Federation == "" || sites[0].Spec.Organization == "" {
			t.Errorf("%s: sites %+v: want one, with federation and organization", e.name, sites)
		}
		names := map[string]int{"pools": 4}[e.name]
		if len(pools) != max(names, 1) {
			t.Fatalf("%s: pools %+v: want %d", e.name, pools, max(names, 1))
		}
		for _, p := range pools[1:] {
			if p.Name != pools[0].Name+"-"+p.Spec.Name || p.Spec.Gateway != pools[0].Spec.Gateway ||
				p.Spec.Directory != "/var/lib/weir/pools/"+p.Spec.Name || p.Spec.Size.IsZero() ||
				p.Labels["tier"] != map[string]string{"fast": "nvme", "bulk": "hdd"}[p.Spec.Name] {
				t.Errorf("%s: pool %+v", e.name, p)
			}
		}
		if len(sites) == 1 && pools[0].Spec.Gateway != namespace+"/"+sites[0].Name+"-0" || pools[0].Spec.Size.IsZero() {
			t.Errorf("%s: pools %+v: want the gateway's", e.name, pools)
		}
		z := pools[0].Spec.ZFS
		if e.name == "zfs" && (z == nil || z.Dataset != "tank/weir" || z.Devices == nil || len(z.Devices.Data) != 2 ||
			len(z.Devices.Log) != 2 || len(z.Devices.Cache) != 2 || z.Devices.Layout != v1alpha1.LayoutMirror ||
			pools[0].Labels["tier"] != "nvme") {
			t.Errorf("%s: pool %+v: want the dataset and its devices", e.name, pools[0])
		}
		for _, c := range of[storagev1.StorageClass](all) {
			policy := c.Parameters[v1alpha1.PolicyParameter]
			if c.Provisioner != v1alpha1.Driver || policy == "" ||
				e.name != "cert-manager" && (len(policies) != 1 || policies[0].Name != policy) {
				t.Errorf("%s: StorageClass %s of %s has policy %q, and there are %+v", e.name, c.Name, c.Provisioner, policy, policies)
			}
		}
		if d := of[storagev1.CSIDriver](all); len(d) != 1 || d[0].Name != v1alpha1.Driver || !*d[0].Spec.AttachRequired ||
			!*d[0].Spec.PodInfoOnMount ||
			!*d[0].Spec.StorageCapacity {
			t.Errorf("%s: CSI drivers %+v: want %s, with attachRequired, podInfoOnMount and storageCapacity", e.name, d, v1alpha1.Driver)
		}
	}
}

// Certificates of cert-manager are of the form that package pki reads.
func TestCertificates(t *testing.T) {
	const organization = "Ecole à Liège" // with what a URI escapes
	all := render(t, "-f", "weir/ci/cert-manager-values.yaml", "--set-string", "organization="+organization)
	names := map[string]bool{}
	for _, c := range of[certificate](all) {
		k := c.Spec.PrivateKey
		if k.Algorithm != "ECDSA" || k.Size != 256 || k.Encoding != "PKCS8" {
			t.Errorf("%s: its key is %+v, which weir does not read", c.Name, k)
		}
		if c.Spec.IsCA {
			if !slices.Equal(c.Spec.URIs, []string{"weir://demo"}) || k.RotationPolicy != "Never" {
				t.Errorf("authority has URIs %q and rotation %q", c.Spec.URIs, k.RotationPolicy)
			}
			continue
		}
		id := pki.Identity{Federation: "demo", Organization: organization, Site: "ams", Gateway: c.Spec.CommonName}
		if err := id.Validate(); err != nil || !slices.Equal(c.Spec.URIs, []string{id.String()}) ||
			!slices.Equal(c.Spec.Subject.Organizations, []string{id.Organization}) {
			t.Errorf("%s is of %q and %q, want %s", c.Name, c.Spec.URIs, c.Spec.Subject.Organizations, id)
		}
		want := pki.PartGateway
		if part, ok := strings.CutPrefix(id.Gateway, "ams-"); ok && part != "0" {
			want = pki.Part(part)
		}
		if !slices.Equal(c.Spec.Subject.OrganizationalUnits, []string{string(want)}) {
			t.Errorf("%s is of parts %q, want %q", c.Name, c.Spec.Subject.OrganizationalUnits, want)
		}
		names[id.Gateway] = true
	}
	for _, want := range []string{"ams-0", "ams-operator", "ams-csi-controller", "ams-csi-node"} {
		if !names[want] {
			t.Errorf("there is no certificate for %s, only for %v", want, names)
		}
	}
}

// Names that YAML would read as something else, or in part, arrive as they were written.
func TestNamesStayText(t *testing.T) {
	const organization = "SURF: Lab #1"
	all := render(t, append(trial(), "--set-string", "site.name=no,federation=2026,organization="+organization)...)
	for _, w := range workloads(all) {
		for _, name := range []string{"Deployment weir-operator", "Job weir-setup"} {
			if strings.HasPrefix(w.name, name) && (flag(w, "--organization") != organization || flag(w, "--site") != "no" ||
				flag(w, "--federation") != "2026") {
				t.Errorf("%s has the flags %q", w.name, w.pod.Spec.Containers[0].Args)
			}
		}
	}
	maps := map[string]string{}
	for _, m := range of[corev1.ConfigMap](all) {
		maps[m.Name] = m.Data["gateway.yaml"] + m.Data["objects.yaml"]
	}
	var config struct{ Federation, Organization, Site, Gateway any }
	if err := yaml.Unmarshal([]byte(maps["weir-gateway"]), &config); err != nil || config.Federation != "2026" ||
		config.Organization != organization || config.Site != "no" || config.Gateway != "no-0" {
		t.Errorf("gateway.yaml says %+v, %v", config, err)
	}
	sites := of[v1alpha1.Site](decode(t, maps["weir-objects"]))
	if len(sites) != 1 || sites[0].Name != "no" || sites[0].Spec.Federation != "2026" || sites[0].Spec.Organization != organization {
		t.Errorf("objects.yaml has the sites %+v", sites)
	}
}
