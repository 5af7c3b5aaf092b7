// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// definition is the part of a CustomResourceDefinition that the page speaks of.
type definition struct {
	Spec struct {
		Names struct {
			Kind       string   `json:"kind"`
			ShortNames []string `json:"shortNames"`
			Categories []string `json:"categories"`
		} `json:"names"`
		Scope    string `json:"scope"`
		Versions []struct {
			Columns []struct {
				Name     string `json:"name"`
				JSONPath string `json:"jsonPath"`
				Priority int    `json:"priority"`
			} `json:"additionalPrinterColumns"`
			Schema struct {
				Root schema `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

type schema struct {
	Type       string            `json:"type"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
	Required   []string          `json:"required"`
	Default    any               `json:"default"`
	Enum       []string          `json:"enum"`
	Minimum    *int64            `json:"minimum"`
	Maximum    *int64            `json:"maximum"`
	MinLength  *int64            `json:"minLength"`
	MaxLength  *int64            `json:"maxLength"`
	MinItems   *int64            `json:"minItems"`
	MaxItems   *int64            `json:"maxItems"`
	MinPairs   *int64            `json:"minProperties"`
	MaxPairs   *int64            `json:"maxProperties"`
	Pattern    string            `json:"pattern"`
	IntString  bool              `json:"x-kubernetes-int-or-string"`
	ListKeys   []string          `json:"x-kubernetes-list-map-keys"`
	ListType   string            `json:"x-kubernetes-list-type"`
	Rules      []struct {
		Rule    string `json:"rule"`
		Message string `json:"message"`
	} `json:"x-kubernetes-validations"`
}

// What the page says is what controller-gen made of the same source: each field, limit, default,
// rule and column, and nothing else.
func TestDefinitions(t *testing.T) {
	s, err := read(filepath.Join("..", "..", from))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../config/crd/*.yaml")
	if err != nil || len(files) != len(s.kinds) {
		t.Fatalf("config/crd has %d definitions and %s %d kinds: run make generate (%v)", len(files), from, len(s.kinds), err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var d definition
		if err := yaml.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		i := slices.IndexFunc(s.kinds, func(k *typeOf) bool { return k.name == d.Spec.Names.Kind })
		if i < 0 {
			t.Errorf("%s: the page has no kind %s", name, d.Spec.Names.Kind)
			continue
		}
		compare(t, s, s.kinds[i], d)
	}
}

func compare(t *testing.T, s *source, k *typeOf, d definition) {
	t.Helper()
	v := d.Spec.Versions[0]
	scope, short, category := resource(k)
	wantShort := ""
	if len(d.Spec.Names.ShortNames) > 0 {
		wantShort = code(d.Spec.Names.ShortNames[0])
	}
	if !strings.HasPrefix(strings.ToLower(d.Spec.Scope), scope) || short != wantShort ||
		!slices.Equal(d.Spec.Names.Categories, []string{category}) {
		t.Errorf("%s: scope %s, short name %s, category %s; the definition has %+v", k.name, scope, short, category, d.Spec.Names)
	}
	var columns, wantColumns []string
	for _, m := range k.markers {
		if m.name == "kubebuilder:printcolumn" {
			columns = append(columns, fmt.Sprint(m.args["name"], m.args["JSONPath"], m.args["priority"] != ""))
		}
	}
	for _, c := range v.Columns {
		wantColumns = append(wantColumns, fmt.Sprint(c.Name, c.JSONPath, c.Priority > 0))
	}
	if !slices.Equal(columns, wantColumns) {
		t.Errorf("%s: columns %q; the definition has %q", k.name, columns, wantColumns)
	}
	_, rules := validation(k.markers)
	got, want := map[string]string{"": said(rules)}, map[string]string{"": demanded(v.Schema.Root)}
	for _, part := range []string{"spec", "status"} {
		f, _ := k.field(part)
		tab := s.tableOf(s.types[f.of], nil) // everything is inside
		of := map[string][]celRule{}
		_, of[part] = validation(f.markers)
		for _, r := range tab.rules {
			path := strings.TrimSuffix(part+"."+r.path, ".")
			of[path] = append(of[path], r.celRule)
		}
		for _, r := range tab.rows {
			describe(got, part+"."+r.path, r)
		}
		for path, rules := range of {
			got[path] += said(rules)
		}
		flatten(want, part, v.Schema.Root.Properties[part])
	}
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if got[path] != want[path] {
			t.Errorf("%s %s:\n  the page says   %q\n  the definition  %q", k.name, path, got[path], want[path])
		}
	}
	for path := range got {
		if _, ok := want[path]; !ok && got[path] != "" {
			t.Errorf("%s: the definition has no %s", k.name, path)
		}
	}
}

// describe says what a row says, in the form of flatten.
func describe(out map[string]string, path string, r row) {
	l := r.limits
	of := fmt.Sprintf("required=%v ", r.required)
	if _, marked := find(r.markers, "kubebuilder:default"); marked {
		of += "default=" + r.initial + " "
	}
	value := fmt.Sprintf("enum=%v min=%s max=%s length=%s-%s pattern=%s ", l.enum, l.min, l.max, l.minLength, l.maxLength, l.pattern)
	switch {
	case strings.HasPrefix(r.of, "map of ") && !r.list:
		out[path] = of + fmt.Sprintf("pairs=%s-%s ", l.minItems, l.maxItems) + value
		return
	case !r.list:
		out[path] = of + value
		return
	}
	out[path] = of + fmt.Sprintf("items=%s-%s key=%s unique=%v ", l.minItems, l.maxItems, l.key, l.unique)
	out[path+"[]"] = value
}

// flatten says what a schema and those inside of it demand, by path. What is inside of a selector
// and a condition is Kubernetes' own.
func flatten(out map[string]string, path string, s schema) {
	for name, p := range s.Properties {
		at := path + "." + name
		out[at] = fmt.Sprintf("required=%v ", slices.Contains(s.Required, name))
		if p.Default != nil {
			out[at] += fmt.Sprintf("default=%v ", p.Default)
		}
		element, inside := p, at
		if p.Type == "array" {
			inside += "[]"
			key := strings.Join(p.ListKeys, ",")
			out[at] += fmt.Sprintf("items=%s-%s key=%s unique=%v ", number(p.MinItems), number(p.MaxItems), key,
				p.ListType == "set") + demanded(p)
			element = *p.Items
			out[inside] = values(element)
		} else {
			if p.MinPairs != nil || p.MaxPairs != nil {
				out[at] += fmt.Sprintf("pairs=%s-%s ", number(p.MinPairs), number(p.MaxPairs))
			}
			out[at] += values(p)
		}
		if name != "conditions" && name != "selector" {
			flatten(out, inside, element)
		}
	}
	if !strings.Contains(path, ".") {
		out[path] += demanded(s)
	}
}

func values(s schema) string {
	if s.IntString {
		s.Pattern = "" // Kubernetes' own, of quantities
	}
	return fmt.Sprintf("enum=%v min=%s max=%s length=%s-%s pattern=%s ", s.Enum, number(s.Minimum), number(s.Maximum),
		number(s.MinLength), number(s.MaxLength), s.Pattern) + demanded(s)
}

func number(n *int64) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

func demanded(s schema) string {
	var rules []celRule
	for _, r := range s.Rules {
		rules = append(rules, celRule{r.Rule, r.Message})
	}
	return said(rules)
}

// said is rules in an order of their own.
func said(rules []celRule) string {
	var all []string
	for _, r := range rules {
		all = append(all, r.rule+" ⇒ "+r.message)
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// The page in the tree is current; make verify says so too.
func TestPageIsCurrent(t *testing.T) {
	current, err := run(filepath.Join("..", "..", from), filepath.Join("..", "..", to), true)
	if err != nil || !current {
		t.Errorf("current %v, %v: run make generate", current, err)
	}
}
