// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/quantity"
	"github.com/weir-storage/weir/federation/spec"
)

// Problems collects what is wrong with a file, so that a person sees all of it at once.
type Problems []error

// Add adds a problem of a field. A value of nil or "" is not shown.
func (p *Problems) Add(field string, value any, format string, a ...any) {
	v := ""
	if s, ok := value.(string); ok && s != "" {
		v = fmt.Sprintf("%q", s)
	} else if !ok && value != nil {
		v = fmt.Sprint(value)
	}
	*p = append(*p, &spec.FieldError{Field: field, Value: v, Problem: fmt.Sprintf(format, a...)})
}

// decodeStrict reads YAML into a struct. It returns, joined, a spec.FieldError with the path of
// each field that the struct does not have and of each value that has the wrong form.
func decodeStrict(text []byte, into any) error {
	js, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return fmt.Errorf("not valid YAML: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(js))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return fmt.Errorf("not valid YAML: %w", err)
	}
	if tree == nil {
		return errors.New("empty: write its fields, as docs/reference/gateway-config.md shows")
	}
	var p Problems
	p.walk("", tree, reflect.TypeOf(into).Elem())
	if len(p) > 0 {
		return errors.Join(p...)
	}
	return json.Unmarshal(js, into)
}

// walk compares a value in the file with the type of its field.
func (p *Problems) walk(path string, v any, t reflect.Type) {
	if v == nil {
		return // null is the same as a field that is left out
	}
	wrong := func(want string) { p.Add(path, show(v), "not the right form: write %s", want) }
	switch t {
	case reflect.TypeFor[federation.Bytes]():
		if _, err := quantity.ParseBytes(plain(v)); err != nil {
			p.Add(path, nil, "%v", err)
		}
		return
	case reflect.TypeFor[federation.Duration]():
		if s, ok := v.(string); !ok {
			wrong("a time span with its unit, such as 30s")
		} else if _, err := quantity.ParseDuration(s); err != nil {
			p.Add(path, nil, "%v", err)
		}
		return
	}
	switch t.Kind() {
	case reflect.Pointer: // a field for which zero is another value than none
		p.walk(path, v, t.Elem())
	case reflect.Float64:
		if _, ok := v.(json.Number); !ok {
			wrong("a number, such as 0.5")
		}
	case reflect.Bool:
		if _, ok := v.(bool); !ok {
			wrong("true or false")
		}
	case reflect.Struct:
		p.fields(path, v, t)
	case reflect.Map:
		m, ok := v.(map[string]any)
		if !ok {
			wrong("a mapping of names to text")
			return
		}
		for _, k := range slices.Sorted(maps.Keys(m)) {
			p.walk(join(path, k), m[k], t.Elem())
		}
	case reflect.Slice:
		l, ok := v.([]any)
		if !ok {
			wrong("a list")
			return
		}
		for i, item := range l {
			p.walk(fmt.Sprintf("%s[%d]", path, i), item, t.Elem())
		}
	case reflect.String:
		if _, ok := v.(string); !ok {
			wrong("text: put it in quotes")
		}
	default:
		panic(fmt.Sprintf("config: no rule for %v at %s", t, path))
	}
}

func (p *Problems) fields(path string, v any, t reflect.Type) {
	m, ok := v.(map[string]any)
	if !ok {
		at := path
		if at == "" {
			at = "the file"
		}
		p.Add(at, show(v), "not the right form: write a mapping of fields")
		return
	}
	known := map[string]reflect.Type{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known[name] = f.Type
	}
	names := slices.Sorted(maps.Keys(known))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if ft, ok := known[k]; ok {
			p.walk(join(path, k), m[k], ft)
			continue
		}
		p.Add(join(path, k), nil, "unknown field%s; known here are %s", near(k, names), strings.Join(names, ", "))
	}
}

// near names a known field that differs only in case, or begins like the written one.
func near(word string, known []string) string {
	same := func(k string) bool { return strings.EqualFold(k, word) }
	begins := func(k string) bool {
		return len(word) > 2 && (strings.HasPrefix(k, word) || strings.HasPrefix(word, k))
	}
	for _, match := range []func(string) bool{same, begins} {
		if i := slices.IndexFunc(known, match); i >= 0 {
			return " (did you mean " + known[i] + "?)"
		}
	}
	return ""
}

// shown is a value that Add prints without quotes.
type shown string

func show(v any) shown {
	js, err := json.Marshal(v)
	if err != nil {
		return shown(fmt.Sprint(v))
	}
	return shown(js)
}

func plain(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return string(show(v))
}

func join(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}
