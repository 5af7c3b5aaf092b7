// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// users is the component of ClusterRoles that are for people.
const users = "users"

const aggregate = "rbac.authorization.k8s.io/aggregate-to-"

// Roles for people become part of the cluster's roles, and change only what has a namespace.
func TestUserRoles(t *testing.T) {
	roles := map[string]*rbacv1.ClusterRole{}
	for _, r := range of[rbacv1.ClusterRole](render(t, trial()...)) {
		if r.Labels["app.kubernetes.io/component"] == users {
			roles[r.Name] = r
		}
	}
	for name, part := range map[string][]string{"weir-view": {"view", "edit", "admin"}, "weir-edit": {"edit", "admin"},
		"weir-storage-admin": nil, "weir-exchange": nil} {
		r := roles[name]
		if r == nil {
			t.Errorf("there is no ClusterRole %s", name)
			continue
		}
		for _, whole := range []string{"view", "edit", "admin"} {
			if got, want := r.Labels[aggregate+whole] == "true", slices.Contains(part, whole); got != want {
				t.Errorf("%s is part of %s: %v, want %v", name, whole, got, want)
			}
		}
		for _, rule := range r.Rules {
			changes := slices.ContainsFunc(rule.Verbs, func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) })
			switch {
			case !slices.Equal(rule.APIGroups, []string{v1alpha1.GroupVersion.Group}):
				t.Errorf("%s is about %q", name, rule.APIGroups)
			case changes && name == "weir-view",
				changes && name == "weir-edit" && !slices.Equal(rule.Resources, []string{"geovolumes", "geovolumesnapshots"}):
				t.Errorf("%s may %q %q", name, rule.Verbs, rule.Resources)
			}
		}
	}
	for _, r := range of[rbacv1.ClusterRole](render(t, trial("--set", "userRoles.create=false")...)) {
		if r.Labels["app.kubernetes.io/component"] == users {
			t.Errorf("without userRoles.create there is %s", r.Name)
		}
	}
}

// userRoles asks the API server what who has one of the roles may do, bound in a namespace and
// bound everywhere. Aggregation is a controller's, and there is none here: the parts are bound
// themselves.
func (c cluster) userRoles(t *testing.T) {
	const lab = "lab"
	create := func(o client.Object) {
		t.Helper()
		if err := c.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, role := range []string{"weir-view", "weir-edit", "weir-storage-admin", "weir-exchange"} {
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		subject := func(user string) []rbacv1.Subject {
			return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}
		}
		create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role, Namespace: namespace}, RoleRef: ref,
			Subjects: subject(lab + " " + role)})
		create(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "user-" + role}, RoleRef: ref,
			Subjects: subject("cluster " + role)})
	}
	const in, out, none = namespace, "default", ""
	type asked struct{ user, verb, resource, namespace string }
	for q, want := range map[asked]bool{
		{"lab weir-view", "get", "geovolumes", in}:                     true,
		{"lab weir-view", "list", "geovolumes", in}:                    true,
		{"lab weir-view", "list", "geovolumes", out}:                   false,
		{"lab weir-view", "create", "geovolumes", in}:                  false,
		{"lab weir-view", "delete", "geovolumes", in}:                  false,
		{"lab weir-view", "list", "geovolumecontents", none}:           false,
		{"cluster weir-view", "list", "geovolumes", out}:               true,
		{"cluster weir-view", "list", "geovolumecontents", none}:       true,
		{"cluster weir-view", "watch", "sites", none}:                  true,
		{"cluster weir-view", "patch", "volumepolicies", none}:         false,
		{"lab weir-edit", "create", "geovolumes", in}:                  true,
		{"lab weir-edit", "delete", "geovolumes", in}:                  true,
		{"lab weir-edit", "create", "geovolumes", out}:                 false,
		{"lab weir-edit", "create", "geovolumesnapshots", in}:          true,
		{"lab weir-view", "delete", "geovolumesnapshots", in}:          false,
		{"lab weir-edit", "update", "volumepolicies", none}:            false,
		{"cluster weir-edit", "patch", "geovolumes", out}:              true,
		{"cluster weir-edit", "update", "geovolumecontents", none}:     false,
		{"cluster weir-edit", "delete", "sites", none}:                 false,
		{"cluster weir-storage-admin", "create", "volumepolicies", ""}: true,
		{"cluster weir-storage-admin", "patch", "placementquotas", ""}: true,
		{"cluster weir-view", "list", "placementquotas", none}:         true,
		{"cluster weir-edit", "patch", "placementquotas", none}:        false,
		{"cluster weir-storage-admin", "delete", "sites", none}:        true,
		{"cluster weir-storage-admin", "get", "secrets", in}:           false,
		{"lab weir-storage-admin", "create", "volumepolicies", none}:   false,
	} {
		group := v1alpha1.GroupVersion.Group
		if q.resource == "secrets" {
			group = ""
		}
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: q.user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: q.verb, Group: group, Resource: q.resource,
				Namespace: q.namespace}}}
		// The authorizer sees new roles a little later than the API does.
		ctx, cancel := context.WithTimeout(t.Context(), hangGuard)
		for {
			if err := c.client.Create(ctx, review); err != nil {
				t.Fatalf("may %+v? the answer was %v at last, want %v: %v", q, review.Status.Allowed, want, err)
			}
			if review.Status.Allowed == want {
				break
			}
		}
		cancel()
	}
}
