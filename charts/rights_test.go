// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// No component may do everything, read Secrets that it did not make, or give itself rights.
func TestRights(t *testing.T) {
	for _, e := range examples(t) {
		t.Run(e.name, func(t *testing.T) {
			all := render(t, e.args...)
			roles := map[string]bool{}
			for _, r := range of[rbacv1.ClusterRole](all) {
				roles[kindAndName(r)] = r.Labels["app.kubernetes.io/component"] != users // those are the administrator's to bind
				checkRules(t, r, r.Rules, true)
			}
			for _, r := range of[rbacv1.Role](all) {
				roles[kindAndName(r)] = true
				checkRules(t, r, r.Rules, false)
			}
			bind := func(o metav1.Object, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
				name := ref.Kind + " " + ref.Name
				if _, ok := roles[name]; !ok {
					t.Errorf("%s binds %s, which is not there", o.GetName(), name)
				}
				delete(roles, name)
				for _, s := range subjects {
					if s.Kind != "ServiceAccount" || s.Namespace != namespace || !slices.ContainsFunc(of[corev1.ServiceAccount](all),
						func(a *corev1.ServiceAccount) bool { return a.Name == s.Name }) {
						t.Errorf("%s gives rights to %+v, who is none of the chart's", o.GetName(), s)
					}
				}
			}
			for _, b := range of[rbacv1.ClusterRoleBinding](all) {
				bind(b, b.RoleRef, b.Subjects)
			}
			for _, b := range of[rbacv1.RoleBinding](all) {
				bind(b, b.RoleRef, b.Subjects)
			}
			for name, ours := range roles {
				if ours {
					t.Errorf("%s is bound to nobody", name)
				}
			}
		})
	}
}

// The operator may do what its code says that it does, in markers +kubebuilder:rbac, and no more.
func TestRightsOfTheOperator(t *testing.T) {
	want := map[string]bool{" events create": true, " events patch": true} // of the library that elects a leader
	files, err := filepath.Glob("../controllers/*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../controllers/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, more...)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			_, marker, found := strings.Cut(strings.TrimSpace(line), "// +kubebuilder:rbac:")
			if !found {
				continue
			}
			fields := map[string][]string{}
			for part := range strings.SplitSeq(marker, ",") {
				k, v, _ := strings.Cut(part, "=")
				fields[k] = strings.Split(strings.Trim(v, `"`), ";")
			}
			rights(want, rbacv1.PolicyRule{APIGroups: fields["groups"], Resources: fields["resources"], Verbs: fields["verbs"],
				ResourceNames: fields["resourceNames"]})
		}
	}
	if len(want) < 20 {
		t.Fatalf("found %d rights in markers of %q: the search misses most", len(want), files)
	}
	got := map[string]bool{}
	all := render(t, trial("--set", "lending.enabled=true,lending.address=192.0.2.20")...)
	for _, r := range of[rbacv1.ClusterRole](all) {
		if r.Name == "weir-operator" {
			rights(got, r.Rules...)
		}
	}
	for _, r := range of[rbacv1.Role](all) {
		if r.Name == "weir-operator" {
			rights(got, r.Rules...)
		}
	}
	for r := range want {
		if !got[r] {
			t.Errorf("the operator lacks the right %q, which a marker in controllers/ names", r)
		}
	}
	for r := range got {
		if !want[r] {
			t.Errorf("the operator has the right %q, which no marker in controllers/ names", r)
		}
	}
}

// rights adds GROUP RESOURCE VERB, and the name if it is for one, for each right of the rules.
func rights(set map[string]bool, rules ...rbacv1.PolicyRule) {
	for _, r := range rules {
		names := r.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					for _, name := range names {
						set[strings.TrimRight(group+" "+resource+" "+verb+" "+name, " ")] = true
					}
				}
			}
		}
	}
}

func checkRules(t *testing.T, role runtime.Object, rules []rbacv1.PolicyRule, cluster bool) {
	t.Helper()
	for _, r := range rules {
		for _, v := range slices.Concat(r.APIGroups, r.Resources, r.Verbs) {
			if strings.Contains(v, "*") {
				t.Errorf("%s has the wildcard %q in %+v", kindAndName(role), v, r)
			}
		}
		for _, v := range []string{"escalate", "bind", "impersonate", "deletecollection"} {
			if slices.Contains(r.Verbs, v) {
				t.Errorf("%s may %s in %+v", kindAndName(role), v, r)
			}
		}
		if slices.ContainsFunc(r.Resources, func(s string) bool {
			return strings.HasPrefix(s, "secrets") || s == "pods/exec" || s == "serviceaccounts/token"
		}) {
			// Creation is not limited by name; nothing else is allowed without one.
			if cluster || len(r.ResourceNames) == 0 && !slices.Equal(r.Verbs, []string{"create"}) || slices.Contains(r.Verbs, "list") {
				t.Errorf("%s may read Secrets that are not its own: %+v", kindAndName(role), r)
			}
		}
	}
}
