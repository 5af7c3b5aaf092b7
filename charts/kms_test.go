// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// A site with a KMS has its key, sealed, in a file that the gateway can write; it reaches the
// plugin; nobody makes a Secret with the key, nor may the Job read one; one that is there is taken.
func TestKMS(t *testing.T) {
	const values = "weir/ci/kms-values.yaml"
	for place, args := range map[string][]string{
		"claim":  {"-f", values},
		"folder": {"-f", values, "--set", "siteKey.kms.hostPath=/srv/key"},
		"none":   {"-f", values, "--set", "siteKey.kms.socket="},
	} {
		all := render(t, args...)
		var config struct {
			SiteKey string
			Keys    struct {
				KMS struct{ Endpoint, From string }
			}
		}
		for _, m := range of[corev1.ConfigMap](all) {
			if m.Name != "weir-gateway" {
				continue
			}
			if err := yaml.Unmarshal([]byte(m.Data["gateway.yaml"]), &config); err != nil {
				t.Fatal(err)
			}
		}
		on := place != "none"
		if kms := config.Keys.KMS; on != (kms.Endpoint == "unix:///run/weir-kms/vault.sock") || on == (config.SiteKey == kms.From) && on ||
			!on && (kms.Endpoint != "" || config.SiteKey != "/etc/weir/site-key/site.key") {
			t.Errorf("%s: the gateway's configuration says %+v", place, config)
		}
		sets := of[appsv1.StatefulSet](all)
		pod := sets[slices.IndexFunc(sets, func(s *appsv1.StatefulSet) bool { return s.Name == "weir-gateway" })].Spec.Template.Spec
		mounts := map[string]corev1.VolumeMount{}
		for _, m := range pod.Containers[0].VolumeMounts {
			mounts[m.Name] = m
		}
		volumes := map[string]corev1.Volume{}
		for _, v := range pod.Volumes {
			volumes[v.Name] = v
		}
		secret := volumes["site-key"].Secret
		if secret.SecretName != "weir-site-key" || on != (secret.Optional != nil && *secret.Optional) {
			t.Errorf("%s: the Secret is %+v", place, secret)
		}
		sealed, socket := volumes["sealed-key"], volumes["kms"]
		switch {
		case !on:
			if sealed.Name != "" || socket.Name != "" {
				t.Errorf("%s: it has %+v and %+v", place, sealed, socket)
			}
		case !strings.HasPrefix(config.SiteKey, mounts["sealed-key"].MountPath+"/") || mounts["sealed-key"].ReadOnly ||
			mounts["kms"].MountPath != "/run/weir-kms" || socket.HostPath.Path != "/var/run/kms" ||
			config.Keys.KMS.From != mounts["site-key"].MountPath+"/site.key":
			t.Errorf("%s: %+v is in %+v, and the plugin at %+v", place, config, mounts, socket)
		case place == "claim" && sealed.PersistentVolumeClaim.ClaimName != "weir-site-key",
			place == "folder" && sealed.HostPath.Path != "/srv/key":
			t.Errorf("%s: the sealed key is in %+v", place, sealed)
		}
		claimed := slices.ContainsFunc(of[corev1.PersistentVolumeClaim](all),
			func(c *corev1.PersistentVolumeClaim) bool { return c.Name == "weir-site-key" })
		if claimed != (place == "claim") {
			t.Errorf("%s: there is a claim: %v", place, claimed)
		}
		asked := false
		for _, w := range workloads(all) {
			asked = asked || slices.Contains(w.pod.Spec.Containers[0].Args, "--site-key=weir-site-key")
		}
		may := false
		for _, r := range of[rbacv1.Role](all) {
			for _, rule := range r.Rules {
				may = may || r.Name == "weir-setup" && slices.Contains(rule.Verbs, "get")
			}
		}
		if asked == on || may == on {
			t.Errorf("%s: the Job makes the Secret: %v, and may read Secrets: %v", place, asked, may)
		}
	}
}
