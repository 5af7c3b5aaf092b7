// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// dashboard is the part of a Grafana dashboard that says what it shows.
type dashboard struct {
	UID, Title string
	Panels     []struct {
		ID                 int
		Title, Description string
		Targets            []struct{ Expr, RefID string }
		FieldConfig        struct{ Defaults struct{ Unit string } }
	}
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
}

// plain is a query with values in place of Grafana's variables.
func plain(query string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$volume", ".+").Replace(query)
}

// Dashboards ask for metrics that there are, in queries that are valid, and say what they show.
func TestDashboards(t *testing.T) {
	files, err := filepath.Glob("weir/files/dashboards/*.json")
	if err != nil || len(files) != 3 {
		t.Fatalf("%q, %v", files, err)
	}
	type recording struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var queries []recording
	uids := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if d.UID == "" || uids[d.UID] || d.Title == "" {
			t.Errorf("%s has UID %q and title %q", file, d.UID, d.Title)
		}
		uids[d.UID] = true
		ids := map[int]bool{}
		for _, p := range d.Panels {
			if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 || ids[p.ID] {
				t.Errorf("%s: panel %d %q lacks something, or is there twice", file, p.ID, p.Title)
			}
			ids[p.ID] = true
			for _, q := range p.Targets {
				expr := plain(q.Expr)
				if strings.Contains(expr, "$") {
					t.Errorf("%s: %q: the test does not know a variable in %s", file, p.Title, q.Expr)
				}
				if unknown := unknownMetrics(expr); len(unknown) > 0 {
					t.Errorf("%s: %q asks for %q, which nobody has", file, p.Title, unknown)
				}
				queries = append(queries, recording{fmt.Sprintf("query:%d", len(queries)), expr})
			}
		}
		for _, v := range d.Templating.List {
			if unknown := unknownMetrics(v.Query); len(unknown) > 0 {
				t.Errorf("%s: variable %s asks for %q, which nobody has", file, v.Name, unknown)
			}
		}
	}
	rules, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboards", "rules": queries}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(path, rules, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", "--lint=none", path)

	made := map[string]string{}
	for _, c := range of[corev1.ConfigMap](render(t, trial("--set", "metrics.dashboards.create=true")...)) {
		if c.Labels["grafana_dashboard"] == "1" {
			for name, text := range c.Data {
				made[name] = text
			}
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := made["weir-"+filepath.Base(file)]; got != string(text) {
			t.Errorf("the chart's ConfigMap of %s is another: %.100s", file, got)
		}
	}
}
