// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weir-storage/weir/metrics"
)

// rules are those of the PrometheusRule.
type rules struct {
	Groups []struct {
		Name     string `json:"name"`
		Interval string `json:"interval"`
		Rules    []rule `json:"rules"`
	} `json:"groups"`
}

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

const rulesFile = "weir/files/rules.yaml"

func readRules(t *testing.T) (r rules) {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// promtool runs promtool, as hack/tools pins it.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("../hack/tools/build", "prometheus").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	bin, err := helm()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(filepath.Dir(bin), "promtool"), args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// ours are the names of Weir's metrics in a query.
var ours = regexp.MustCompile(`weir_[a-z_]+`)

// unknownMetrics returns the metrics that a query asks for and nobody has.
func unknownMetrics(query string) (unknown []string) {
	for _, name := range ours.FindAllString(query, -1) {
		if !slices.ContainsFunc(metrics.Catalog(), func(d *metrics.Definition) bool {
			rest, ok := strings.CutPrefix(name, d.Name)
			return ok && (rest == "" || d.Kind == metrics.Histogram && slices.Contains([]string{"_bucket", "_count", "_sum"}, rest))
		}) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// Rules are valid, ask for metrics that there are, fire when they should, and not else. Each alert
// has a runbook with all parts.
func TestRules(t *testing.T) {
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", rulesFile)
	all := readRules(t)
	text, err := os.ReadFile("testdata/rules.test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := os.ReadFile("../docs/runbooks/README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{"README.md": true}
	for _, g := range all.Groups {
		for i, r := range g.Rules {
			if unknown := unknownMetrics(r.Expr); len(unknown) > 0 {
				t.Errorf("%s asks for %q, which nobody has", r.Alert, unknown)
			}
			for _, kind := range []string{"fires", "is quiet"} {
				if !strings.Contains(string(text), "- name: "+r.Alert+" "+kind+"\n") {
					t.Errorf("no test says when %s %s", r.Alert, kind)
				}
			}
			if s := r.Labels["severity"]; s != "critical" && s != "warning" {
				t.Errorf("%s has severity %q", r.Alert, s)
			}
			page := r.Alert + ".md"
			found[page] = true
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Annotations["runbook_url"] != "RUNBOOKS/"+page {
				t.Errorf("%s has the annotations %q", r.Alert, r.Annotations)
			}
			book, err := os.ReadFile(filepath.Join("../docs/runbooks", page))
			if err != nil {
				t.Error(err)
				continue
			}
			for _, part := range []string{"# " + r.Alert + "\n", "Severity: " + r.Labels["severity"] + ".\n",
				"```promql\n" + r.Expr + "\n```\n", "## What it means\n", "## What to look at\n", "## What to do\n"} {
				if !strings.Contains(string(book), part) {
					t.Errorf("docs/runbooks/%s has no %q", page, part)
				}
			}
			if !strings.Contains(string(pages), "("+page+") | "+r.Labels["severity"]+" |") {
				t.Errorf("docs/runbooks/README.md does not list %s", r.Alert)
			}
			g.Rules[i].Annotations = nil
		}
	}
	books, err := os.ReadDir("../docs/runbooks")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range books {
		if !found[b.Name()] {
			t.Errorf("docs/runbooks/%s is for no alert", b.Name())
		}
	}

	dir := t.TempDir()
	bare, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"rules.yaml": bare, "rules.test.yaml": text} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	promtool(t, "test", "rules", filepath.Join(dir, "rules.test.yaml"))
}

// The chart makes one object of the rules, with the place of the runbooks.
func TestRulesAreInstalled(t *testing.T) {
	made := of[prometheusRule](render(t, trial("--set", "metrics.rules.create=true", "--set", "metrics.rules.labels.release=prometheus",
		"--set", "metrics.rules.runbooks=https://wiki.example.org/weir/")...))
	if len(made) != 1 || made[0].Labels["release"] != "prometheus" {
		t.Fatalf("made %+v", made)
	}
	want := readRules(t)
	if len(made[0].Spec.Groups) != 1 || len(made[0].Spec.Groups[0].Rules) != len(want.Groups[0].Rules) {
		t.Fatalf("made %+v", made[0].Spec)
	}
	for i, r := range made[0].Spec.Groups[0].Rules {
		w := want.Groups[0].Rules[i]
		if r.Expr != w.Expr || r.Annotations["summary"] != w.Annotations["summary"] ||
			r.Annotations["runbook_url"] != "https://wiki.example.org/weir/"+r.Alert+".md" {
			t.Errorf("%+v, want %+v", r, w)
		}
	}
	if made := of[prometheusRule](render(t, trial()...)); len(made) > 0 {
		t.Errorf("unasked there is %+v", made)
	}
}
