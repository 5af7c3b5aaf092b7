// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const console = "weir-console"

// behind are the values of a console behind an ingress; open is one that browsers reach themselves.
var (
	behind = []string{"-f", "weir/ci/console-values.yaml"}
	open   = "console.enabled=true,console.tls.secret=weir-tls,console.url=https://weir.example.org:30843/,console.expose="
)

// consoleOf is the console's Deployment, container and Service.
func consoleOf(t *testing.T, all []runtime.Object) (*appsv1.Deployment, corev1.Container, *corev1.Service) {
	t.Helper()
	ds, ss := of[appsv1.Deployment](all), of[corev1.Service](all)
	d := slices.IndexFunc(ds, func(d *appsv1.Deployment) bool { return d.Name == console })
	s := slices.IndexFunc(ss, func(s *corev1.Service) bool { return s.Name == console })
	if d < 0 || s < 0 {
		t.Fatalf("there is no console, or no Service of it: %d, %d", d, s)
	}
	return ds[d], ds[d].Spec.Template.Spec.Containers[0], ss[s]
}

// There is no console unless somebody wants one.
func TestNoConsole(t *testing.T) {
	for _, o := range render(t, trial()...) {
		if strings.HasSuffix(kindAndName(o), " "+console) {
			t.Errorf("%s is there", kindAndName(o))
		}
	}
}

// A console behind an ingress: who speaks HTTPS, and where people sign in.
func TestConsoleBehindAnIngress(t *testing.T) {
	all := render(t, behind...)
	d, c, s := consoleOf(t, all)
	if *d.Spec.Replicas != 1 || d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		t.Errorf("%d replicas, replaced by %s: one knows who is signed in, and the next is ready before it goes", *d.Spec.Replicas,
			d.Spec.Strategy.Type)
	}
	want := []string{"console", "--listen=:8443", "--url=https://weir.example.org", "--oidc-issuer=https://login.example.org/realms/surf",
		"--oidc-client=weir", "--oidc-scopes=email,groups", "--oidc-secret-file=/etc/weir/oidc/client-secret", "--health=:8088",
		"--log-level=info", "--log-format=text"}
	if !slices.Equal(c.Args, want) {
		t.Errorf("its arguments are %q, want %q", c.Args, want)
	}
	port := s.Spec.Ports[0]
	if s.Spec.Type != corev1.ServiceTypeClusterIP || port.Name != "http" || port.Port != 80 || *port.AppProtocol != "http" {
		t.Errorf("its Service is %s, %+v", s.Spec.Type, port)
	}
	ingress := func(set string) networkingv1.IngressSpec {
		t.Helper()
		some := of[networkingv1.Ingress](render(t, append(slices.Clone(behind), "--set", set)...))
		if len(some) != 1 {
			t.Fatalf("%s: %d Ingresses", set, len(some))
		}
		return some[0].Spec
	}
	for set, of := range map[string]struct{ host, secret, port string }{
		"console.url=https://Weir.example.org:8443/": {"weir.example.org", "weir-example-org", "http"},
		"console.ingress.host=inside.example.org":    {"inside.example.org", "weir-example-org", "http"},
		"console.ingress.tlsSecret=":                 {"weir.example.org", "", "http"},
		"console.tls.secret=weir-tls":                {"weir.example.org", "weir-example-org", "https"},
	} {
		i := ingress(set)
		if to := i.Rules[0].HTTP.Paths[0].Backend.Service; i.Rules[0].Host != of.host || !slices.Equal(i.TLS[0].Hosts, []string{of.host}) ||
			i.TLS[0].SecretName != of.secret || to.Name != console || to.Port.Name != of.port || *i.IngressClassName != "nginx" {
			t.Errorf("%s: the Ingress is %+v", set, i)
		}
	}
}

// A console that browsers reach at a port of the nodes or at a load balancer speaks HTTPS itself.
func TestConsoleInTheOpen(t *testing.T) {
	for expose, more := range map[string]string{"NodePort": "", "LoadBalancer": ",console.port=8443,console.loadBalancer.class=l4," +
		"console.loadBalancer.annotations.a=b,console.loadBalancer.sourceRanges={192.0.2.0/24}"} {
		all := render(t, trial("--set", open+expose+more)...)
		d, c, s := consoleOf(t, all)
		for _, want := range []string{"--url=https://weir.example.org:30843/", "--cert=/etc/weir/tls/tls.crt",
			"--key=/etc/weir/tls/tls.key"} {
			if !slices.Contains(c.Args, want) {
				t.Errorf("%s: the arguments %q lack %s", expose, c.Args, want)
			}
		}
		if slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--oidc") }) {
			t.Errorf("%s: without an issuer its arguments are %q", expose, c.Args)
		}
		if !slices.ContainsFunc(d.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Secret != nil && v.Secret.SecretName == "weir-tls"
		}) {
			t.Errorf("%s: it has no certificate", expose)
		}
		port := s.Spec.Ports[0]
		switch {
		case string(s.Spec.Type) != expose || port.Name != "https" || port.AppProtocol != nil:
			t.Errorf("%s: its Service is %s, %+v", expose, s.Spec.Type, port)
		case expose == "NodePort" && (port.NodePort != 30843 || port.Port != 443):
			t.Errorf("%s: its port is %+v", expose, port)
		case expose == "LoadBalancer" && (port.Port != 8443 || port.NodePort != 0 || *s.Spec.LoadBalancerClass != "l4" ||
			s.Annotations["a"] != "b" || !slices.Equal(s.Spec.LoadBalancerSourceRanges, []string{"192.0.2.0/24"})):
			t.Errorf("%s: its Service is %+v", expose, s)
		}
		if n := len(of[networkingv1.Ingress](all)); n > 0 {
			t.Errorf("%s: %d Ingresses", expose, n)
		}
	}
}

// An issuer whose authority is the institution's own is known by a file; its client may have no
// secret, and ask for no scope.
func TestIssuerOfTheConsole(t *testing.T) {
	d, c, _ := consoleOf(t, render(t, append(slices.Clone(behind), "--set", "console.oidc.ca=surf-ca,console.oidc.secret=,"+
		"console.oidc.scopes=null")...))
	if !slices.Contains(c.Env, corev1.EnvVar{Name: "SSL_CERT_FILE", Value: "/etc/weir/issuer/ca.crt"}) ||
		!slices.ContainsFunc(d.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool {
			return v.ConfigMap != nil && v.ConfigMap.Name == "surf-ca"
		}) {
		t.Errorf("its environment is %v", c.Env)
	}
	if slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--oidc-secret-file") }) {
		t.Errorf("its arguments are %q", c.Args)
	}
}

// The console has no rights and no token: it has those of who is signed in.
func TestConsoleHasNoRights(t *testing.T) {
	for name, args := range map[string][]string{"behind": behind, "open": trial("--set", open+"NodePort")} {
		all := render(t, args...)
		d, _, _ := consoleOf(t, all)
		s := d.Spec.Template.Spec
		if s.ServiceAccountName != console || s.AutomountServiceAccountToken == nil || *s.AutomountServiceAccountToken {
			t.Errorf("%s: it runs as %q, and has its token", name, s.ServiceAccountName)
		}
		for _, a := range of[corev1.ServiceAccount](all) {
			if a.Name == console && (a.AutomountServiceAccountToken == nil || *a.AutomountServiceAccountToken) {
				t.Errorf("%s: whoever uses its account has its token", name)
			}
		}
		for _, v := range s.Volumes {
			if v.Projected != nil {
				t.Errorf("%s: volume %s may have a token", name, v.Name)
			}
		}
		var subjects []rbacv1.Subject
		for _, b := range of[rbacv1.ClusterRoleBinding](all) {
			subjects = append(subjects, b.Subjects...)
		}
		for _, b := range of[rbacv1.RoleBinding](all) {
			subjects = append(subjects, b.Subjects...)
		}
		if len(subjects) == 0 || slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool { return s.Name == console }) {
			t.Errorf("%s: bound are %v", name, subjects)
		}
	}
}

// Who reaches the console, and whom it reaches: the API server, and the issuer if there is one.
func TestPoliciesOfTheConsole(t *testing.T) {
	issuer := far{what: "issuer", port: 8443, addr: netip.MustParseAddr("203.0.113.9")}
	api := far{what: "API server", port: 6443, addr: netip.MustParseAddr("203.0.113.5")}
	names := far{what: "DNS", port: 53, udp: true}
	browser := far{what: "a browser", addr: netip.MustParseAddr("198.51.100.77")}
	at := "console.oidc.issuer=https://login.example.org:8443/surf"
	for _, c := range []struct {
		name    string
		args    []string
		reached []far
		barred  []far
		anybody bool
	}{
		{name: "an issuer", args: append(slices.Clone(behind), "--set", at), reached: []far{api, issuer, names}},
		{name: "issuers elsewhere", args: append(slices.Clone(behind), "--set", at+",networkPolicies.issuers={192.0.2.0/24},"+
			"networkPolicies.apiServers={203.0.113.5/32}"), reached: []far{api, names}, barred: []far{issuer}},
		{name: "tokens only", args: trial("--set", open+"NodePort"), reached: []far{api}, barred: []far{issuer, names}, anybody: true},
	} {
		all := render(t, c.args...)
		i := slices.IndexFunc(workloads(all), func(w workload) bool { return w.name == "Deployment "+console })
		w := workloads(all)[i]
		policies, named := ofPod(all, w), ports(w)
		for _, f := range c.reached {
			if !out(policies, f) {
				t.Errorf("%s: it does not reach: %s", c.name, f.what)
			}
		}
		for _, f := range append(c.barred, far{what: "registry", port: 2379, addr: api.addr}) {
			if out(policies, f) {
				t.Errorf("%s: it reaches: %s", c.name, f.what)
			}
		}
		browser.port = named["console"]
		if got := into(policies, browser, named); got != c.anybody {
			t.Errorf("%s: anybody reaches it: %v", c.name, got)
		}
		if from := policies[0].Spec.Ingress[0].From; !c.anybody && (len(from) != 1 ||
			from[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "ingress-nginx") {
			t.Errorf("%s: it is reached from %v", c.name, from)
		}
		browser.port = named["health"]
		if into(policies, browser, named) {
			t.Errorf("%s: anybody reaches its probes", c.name)
		}
	}
}

// Wrong values of the console are reported by their names, with what to do.
func TestRefusalsOfTheConsole(t *testing.T) {
	for set, wanted := range map[string][]string{
		"console.url=":                         {"console.url: missing", "such as https://weir.example.org"},
		"console.url=http://weir.example.org":  {"console.url: http://weir.example.org: write https://"},
		"console.url=https://example.org/weir": {"console.url: https://example.org/weir", "no path"},
		"console.url=https://[::1":             {"console.url: https://[::1: write https://"},
		"console.url=https://192.0.2.7:8443":   {"console.ingress.host: \"\": an Ingress wants a name, and 192.0.2.7 is an address"},
		"console.url=https://[2001:db8::1]":    {"console.ingress.host: \"\"", "[2001:db8::1] is an address"},
		"console.ingress.host=192.0.2.7":       {"console.ingress.host: \"192.0.2.7\""},
		"console.expose=NodePort":              {"console.tls.secret: missing: with expose NodePort", "kubernetes.io/tls"},
		"console.expose=LoadBalancer":          {"console.tls.secret: missing: with expose LoadBalancer"},
		"console.expose=HostNetwork":           {"/console/expose", "ClusterIP"},
		"console.oidc.issuer=http://x.example": {"console.oidc.issuer: http://x.example: write a URL that begins with https://"},
		"console.oidc.issuer=https://[::1":     {"console.oidc.issuer: https://[::1"},
		"console.oidc.issuer=": {"console.oidc.issuer: missing: with console.oidc.client weir",
			"console.oidc.issuer: missing: with console.oidc.secret weir-console-oidc", "sign in with a token"},
		"console.oidc.client=":               {"console.oidc.client: missing: with console.oidc.issuer https://login.example.org/"},
		"console.oidc.scopes={email groups}": {"/console/oidc/scopes/0"},
		"console.replicas=2":                 {"/console", "replicas"},
		"console.tls.secret=A_b":             {"/console/tls/secret"},
		"networkPolicies.issuers={x}":        {"/networkPolicies/issuers/0"},
	} {
		_, stderr, err := run(t, append([]string{"template", "weir", "weir", "--kube-version", kubeVersion, "--set", set}, behind...)...)
		if err == nil {
			t.Errorf("%s: no error", set)
		}
		for _, want := range wanted {
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: the message lacks %q:\n%s", set, want, stderr)
			}
		}
	}
	// Without a console, nobody looks at its values.
	render(t, trial("--set", "console.url=x,console.expose=NodePort,console.oidc.client=y")...)
}
