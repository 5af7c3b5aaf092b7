// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// called is how people call types that this API has of others.
var called = map[string]string{
	"string": "string", "bool": "boolean", "int32": "integer", "int64": "integer",
	"resource.Quantity": "quantity", "metav1.Duration": "duration", "metav1.Time": "time", "metav1.LabelSelector": "label selector",
	"metav1.Condition": "condition", "map of string": "map of strings",
}

// row is a field, with its path from the beginning of its table.
type row struct {
	path string
	field
	limits
	// section is the type that is described elsewhere; empty: it is described here.
	section string
}

// pathRule is a rule and the path of what it is about; empty: all of the table.
type pathRule struct {
	path string
	celRule
}

// table is what is said about one structure.
type table struct {
	of    *typeOf
	rows  []row
	rules []pathRule
	enums []pathEnum
}

// pathEnum has the values of an enumeration that have a comment.
type pathEnum struct {
	path   string
	values []constant
}

// structure reports whether a name is that of a structure of this API.
func (s *source) structure(name string) *typeOf {
	if t := s.types[name]; t != nil && t.base == "" {
		return t
	}
	return nil
}

// shared are the types that are described apart from the fields that are of them: structures of
// specs and status, and those that more than one field is of; and strings with a name that have a
// form, as names have, which is tedious to read again and again.
func (s *source) shared() map[string]bool {
	uses := map[string]int{}
	seen := map[string]bool{}
	var visit func(t *typeOf)
	visit = func(t *typeOf) {
		if seen[t.name] {
			return
		}
		seen[t.name] = true
		for _, f := range t.fields {
			if u := s.structure(f.of); u != nil {
				uses[u.name]++
				visit(u)
			}
		}
	}
	out := map[string]bool{}
	for _, k := range s.kinds {
		visit(k)
		for _, part := range []string{"spec", "status"} {
			if f, ok := k.field(part); ok {
				out[f.of] = true
			}
		}
	}
	for name, n := range uses {
		if n > 1 {
			out[name] = true
		}
	}
	for name, t := range s.types {
		if l, _ := validation(t.markers); l.pattern != "" {
			out[name] = true
		}
	}
	return out
}

// tableOf walks a structure, and those inside of it that have no table of their own.
func (s *source) tableOf(t *typeOf, shared map[string]bool) table {
	out := table{of: t}
	_, rules := validation(t.markers)
	out.add("", rules)
	s.walk(&out, t, "", shared)
	return out
}

func (t *table) add(path string, rules []celRule) {
	for _, r := range rules {
		t.rules = append(t.rules, pathRule{path, r})
	}
}

func (s *source) walk(out *table, t *typeOf, prefix string, shared map[string]bool) {
	for _, f := range t.fields {
		if f.inline || f.metadata {
			continue
		}
		r := row{path: prefix + f.name, field: f}
		l, rules := validation(f.markers)
		out.add(r.path, rules)
		inside := r.path
		if f.list {
			inside += "[]"
		}
		named := s.types[f.of]
		if shared[f.of] {
			r.section = f.of
		} else if named != nil && named.base != "" {
			typeLimits, typeRules := validation(named.markers)
			l = typeLimits.and(l)
			out.add(inside, typeRules)
			out.enum(inside, named.values)
		}
		r.limits = l
		out.rows = append(out.rows, r)
		if u := s.structure(f.of); u != nil && r.section == "" {
			_, typeRules := validation(u.markers)
			out.add(inside, typeRules)
			s.walk(out, u, inside+".", shared)
		}
	}
}

// enum keeps the values of which the comments say more than the name.
func (t *table) enum(path string, values []constant) {
	values = slices.DeleteFunc(slices.Clone(values), func(c constant) bool { return c.doc == "" })
	if len(values) > 0 {
		t.enums = append(t.enums, pathEnum{path, values})
	}
}

// and is l, with what m says besides.
func (l limits) and(m limits) limits {
	for _, f := range []struct {
		field *string
		value string
	}{
		{&l.min, m.min}, {&l.max, m.max}, {&l.minLength, m.minLength}, {&l.maxLength, m.maxLength},
		{&l.minItems, m.minItems}, {&l.maxItems, m.maxItems}, {&l.pattern, m.pattern}, {&l.key, m.key},
	} {
		if f.value != "" {
			*f.field = f.value
		}
	}
	if m.enum != nil {
		l.enum = m.enum
	}
	l.unique = l.unique || m.unique
	return l
}

// check finds what the page would be silent about.
func (s *source) check() error {
	var problems []error
	for _, k := range s.kinds {
		if k.doc == "" {
			problems = append(problems, fmt.Errorf("kind %s: no comment: say what it is", k.name))
		}
		for _, part := range []string{"spec", "status"} {
			f, ok := k.field(part)
			t := s.structure(f.of)
			if !ok || t == nil {
				problems = append(problems, fmt.Errorf("kind %s: no field %s that is a structure", k.name, part))
				continue
			}
			problems = append(problems, s.checkFields(t, part == "spec", f.change != "", nil))
		}
	}
	for _, c := range s.constants {
		_, doc := meaning(c)
		switch {
		case doc == "" && c.of == "":
			problems = append(problems, fmt.Errorf("constant %s: no comment: say what it means", c.name))
		case isCondition(c):
			if _, p := polarity(c.doc); p == "" {
				problems = append(problems,
					fmt.Errorf("constant %s: no sentence that begins with Polarity: say which of its states is the good one", c.name))
			}
		}
	}
	return errors.Join(problems...)
}

func (s *source) checkFields(t *typeOf, spec, covered bool, above []string) error {
	if slices.Contains(above, t.name) {
		return fmt.Errorf("%s is inside of itself: teach hack/apidocs how to show that", t.name)
	}
	var problems []error
	for _, f := range t.fields {
		if f.inline || f.metadata {
			continue
		}
		where := t.name + "." + f.name
		if f.doc == "" {
			problems = append(problems, fmt.Errorf("field %s: no comment: say what it means", where))
		}
		u := s.structure(f.of)
		if u == nil && called[f.of] == "" && s.types[f.of] == nil {
			problems = append(problems, fmt.Errorf("field %s: type %s is not known: teach hack/apidocs what it is called", where, f.of))
		}
		if u == nil && spec && !covered && f.change == "" {
			problems = append(problems,
				fmt.Errorf("field %s: no sentence that begins with Live, NewDataOnly or Immutable: say what a change does", where))
		}
		if u != nil {
			problems = append(problems, s.checkFields(u, spec, covered || f.change != "", append(above, t.name)))
		}
	}
	// The same structure may be reached twice.
	seen := map[string]bool{}
	return errors.Join(slices.DeleteFunc(problems, func(err error) bool {
		if err == nil || seen[err.Error()] {
			return true
		}
		seen[err.Error()] = true
		return false
	})...)
}

func isCondition(c constant) bool { return strings.HasPrefix(c.name, "Condition") }
func isReason(c constant) bool    { return strings.HasPrefix(c.name, "Reason") }
