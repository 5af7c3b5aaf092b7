// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/quantity"
)

// notYet are fields of the plan that this release does not have; they deserve a better answer than
// "unknown".
var notYet = map[string]string{
	"spec.cache.mode":          "the cache is write-back into the log",
	"spec.replication.erasure": "copies are whole",
	"spec.grants":              "",
	"spec.import":              "",
	"spec.access":              "",
	"spec.policy":              "write the policy's fields into spec",
}

// Parse reads one manifest, fills in defaults and checks it. All that is wrong is returned at once,
// as joined FieldErrors.
func Parse(manifest []byte) (VolumeManifest, error) {
	var m VolumeManifest
	if documents(manifest) > 1 {
		return m, &FieldError{Field: "manifest", Problem: "more than one YAML document: write one volume per file"}
	}
	js, err := yaml.YAMLToJSONStrict(manifest)
	if err != nil {
		return m, &FieldError{Field: "manifest", Problem: fmt.Sprintf("not valid YAML: %v", err)}
	}
	var tree any
	d := json.NewDecoder(bytes.NewReader(js))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return m, &FieldError{Field: "manifest", Problem: fmt.Sprintf("not valid YAML: %v", err)}
	}
	if tree == nil {
		return m, &FieldError{Field: "manifest", Problem: "empty: write apiVersion, kind, metadata and spec"}
	}
	var p problems
	p.walk("", tree, reflect.TypeFor[VolumeManifest]())
	if len(p) > 0 {
		return m, errors.Join(p...)
	}
	if err := json.Unmarshal(js, &m); err != nil {
		return m, &FieldError{Field: "manifest", Problem: err.Error()}
	}
	Default(&m.Spec)
	return m, Validate(m)
}

// documents counts the documents with something in them.
func documents(manifest []byte) int {
	n, something := 0, false
	for line := range strings.Lines(string(manifest)) {
		text := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "---"):
			something = false
		case text != "" && !strings.HasPrefix(text, "#") && !something:
			something = true
			n++
		}
	}
	return n
}

// walk compares what was written with the type that it is for.
func (p *problems) walk(path string, v any, t reflect.Type) {
	if v == nil {
		return // as if it were left out
	}
	switch t {
	case reflect.TypeFor[federation.Bytes]():
		p.quantity(path, v, func(s string) error { _, err := quantity.ParseBytes(s); return err })
		return
	case reflect.TypeFor[federation.Duration]():
		if _, ok := v.(json.Number); ok {
			p.wrong(path, v, "a time span with its unit, such as 30s")
			return
		}
		p.quantity(path, v, func(s string) error { _, err := quantity.ParseDuration(s); return err })
		return
	}
	switch t.Kind() {
	case reflect.Pointer: // a field for which zero is another value than none
		p.walk(path, v, t.Elem())
	case reflect.Struct:
		p.object(path, v, t)
	case reflect.Map:
		fields, ok := v.(map[string]any)
		if !ok {
			p.wrong(path, v, "a mapping of names to text")
			return
		}
		for _, k := range slices.Sorted(maps.Keys(fields)) {
			p.walk(join(path, k), fields[k], t.Elem())
		}
	case reflect.Slice:
		items, ok := v.([]any)
		if !ok {
			p.wrong(path, v, "a list")
			return
		}
		for i, item := range items {
			if item == nil {
				p.wrong(fmt.Sprintf("%s[%d]", path, i), "", "text")
				continue
			}
			p.walk(fmt.Sprintf("%s[%d]", path, i), item, t.Elem())
		}
	case reflect.String:
		if _, ok := v.(string); !ok {
			p.wrong(path, v, "text: put it in quotes")
		}
	case reflect.Bool:
		if _, ok := v.(bool); !ok {
			p.wrong(path, v, "true or false, without quotes")
		}
	case reflect.Int, reflect.Int64:
		n, ok := v.(json.Number)
		if !ok {
			p.wrong(path, v, "a whole number, without quotes")
			return
		}
		if i, err := n.Int64(); err != nil || t.Kind() == reflect.Int && (i > math.MaxInt32 || i < math.MinInt32) {
			p.wrong(path, v, "a whole number")
		}
	default:
		panic(fmt.Sprintf("spec: no rule for %v at %s", t, path))
	}
}

func (p *problems) quantity(path string, v any, parse func(string) error) {
	var text string
	switch v := v.(type) {
	case string:
		text = v
	case json.Number:
		text = v.String()
	default:
		p.wrong(path, v, "a number with a unit")
		return
	}
	if err := parse(text); err != nil {
		*p = append(*p, &FieldError{Field: path, Problem: err.Error()})
	}
}

func (p *problems) object(path string, v any, t reflect.Type) {
	fields, ok := v.(map[string]any)
	if !ok {
		p.wrong(path, v, "a mapping of fields")
		return
	}
	known := map[string]reflect.Type{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		known[name] = t.Field(i).Type
	}
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		at := join(path, k)
		if ft, ok := known[k]; ok {
			p.walk(at, fields[k], ft)
			continue
		}
		if why, ok := notYet[at]; ok {
			problem := "not available in this release: remove it"
			if why != "" {
				problem += " (" + why + ")"
			}
			p.add(at, show(fields[k]), "%s", problem)
			continue
		}
		names := slices.Sorted(maps.Keys(known))
		p.add(at, show(fields[k]), "unknown field%s; known here are %s", didYouMean(k, names), strings.Join(names, ", "))
	}
}

func (p *problems) wrong(path string, v any, want string) {
	if path == "" {
		path = "manifest"
	}
	p.add(path, show(v), "not the right form: write %s", want)
}

// shown is what p.add prints as it is.
type shown string

// show is a value, short, for a message.
func show(v any) shown {
	js, err := json.Marshal(v)
	if err != nil {
		return shown(fmt.Sprint(v))
	}
	if len(js) > 60 {
		return shown(js[:57]) + "..."
	}
	return shown(js)
}

func join(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

// didYouMean names the nearest word, if one is near.
func didYouMean(word string, known []string) string {
	best, nearest := 1+max(2, len(word)/3), ""
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k)); d < best {
			best, nearest = d, k
		}
	}
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", nearest)
}

// distance is the number of letters to insert, delete or replace (Levenshtein 1966).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
