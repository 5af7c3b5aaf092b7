// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// source is a package of an API.
type source struct {
	group, version string
	doc            string
	types          map[string]*typeOf
	constants      []constant
	kinds          []*typeOf // those with the marker kubebuilder:object:root that are no lists, in the order of the package comment
}

// constant has the value of a string constant.
type constant struct{ name, of, value, doc string }

// typeOf is a type: a structure, or a string with a name.
type typeOf struct {
	name, doc string
	markers   []marker
	base      string // of what is no structure
	fields    []field
	values    []constant // of an enumeration
}

// field is one of a structure. Its doc is without the sentences on default and change.
type field struct {
	name, doc        string
	of               string // name of the type; "pkg.Name" for those of other packages
	list             bool
	required         bool
	initial, change  string
	markers          []marker
	inline, metadata bool
}

// read parses the Go files of a folder.
func read(dir string) (*source, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	s := &source{version: path.Base(filepath.ToSlash(dir)), types: map[string]*typeOf{}}
	fset := token.NewFileSet()
	var problems []error
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if ast.IsGenerated(f) {
			continue
		}
		problems = append(problems, s.file(f))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	for _, c := range s.constants {
		if t := s.types[c.of]; t != nil {
			t.values = append(t.values, c)
		}
	}
	for _, line := range strings.Split(s.doc, "\n") {
		words := strings.Fields(line)
		if len(words) > 0 && s.types[words[0]] != nil && strings.HasPrefix(line, "\t") {
			s.kinds = append(s.kinds, s.types[words[0]])
		}
	}
	return s, s.complete(dir)
}

// complete makes sure that what was read is an API of which each kind is in the package comment.
func (s *source) complete(dir string) error {
	if s.group == "" {
		return fmt.Errorf("%s: no package comment with the marker +groupName: run this in the root of the source tree", dir)
	}
	listed := map[string]bool{}
	for _, k := range s.kinds {
		listed[k.name] = true
	}
	for name, t := range s.types {
		if t.isKind() && !listed[name] {
			return fmt.Errorf("%s: kind %s is not in the table of the package comment: add its row", dir, name)
		}
	}
	return nil
}

func (t *typeOf) isKind() bool {
	_, root := find(t.markers, "kubebuilder:object:root")
	_, list := t.field("items")
	return root && !list
}

func (t *typeOf) field(name string) (field, bool) {
	for _, f := range t.fields {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}

func (s *source) file(f *ast.File) error {
	var problems []error
	if f.Doc != nil {
		doc, markers, err := comment(f.Doc)
		problems = append(problems, err)
		if m, ok := find(markers, "groupName"); ok {
			s.group, s.doc = m.value, doc
		}
	}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range g.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				problems = append(problems, s.typeSpec(spec, either(spec.Doc, g.Doc)))
			case *ast.ValueSpec:
				if g.Tok == token.CONST {
					s.constant(spec)
				}
			}
		}
	}
	return errors.Join(problems...)
}

func either(a, b *ast.CommentGroup) *ast.CommentGroup {
	if a != nil {
		return a
	}
	return b
}

// constant keeps a string constant; what is made of another package's is none of the API's.
func (s *source) constant(spec *ast.ValueSpec) {
	of, _ := spec.Type.(*ast.Ident)
	for i, name := range spec.Names {
		if i >= len(spec.Values) || !name.IsExported() {
			continue
		}
		value, ok := s.evaluate(spec.Values[i])
		if !ok {
			continue
		}
		c := constant{name: name.Name, value: value, doc: oneLine(either(spec.Doc, spec.Comment).Text())}
		if of != nil {
			c.of = of.Name
		}
		s.constants = append(s.constants, c)
	}
}

func (s *source) evaluate(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		for _, c := range s.constants {
			if c.name == e.Name {
				return c.value, true
			}
		}
	case *ast.BinaryExpr:
		a, okA := s.evaluate(e.X)
		b, okB := s.evaluate(e.Y)
		return a + b, okA && okB && e.Op == token.ADD
	}
	return "", false
}

func (s *source) typeSpec(spec *ast.TypeSpec, doc *ast.CommentGroup) error {
	if !spec.Name.IsExported() {
		return nil
	}
	t := &typeOf{name: spec.Name.Name}
	s.types[t.name] = t
	text, markers, err := comment(doc)
	t.doc, t.markers = oneLine(text), markers
	problems := []error{in(t.name, err)}
	st, ok := spec.Type.(*ast.StructType)
	if !ok {
		of, _, err := reference(spec.Type)
		t.base = of
		return errors.Join(append(problems, in(t.name, err))...)
	}
	for _, a := range st.Fields.List {
		f, err := structField(a)
		problems = append(problems, in(t.name+"."+f.name, err))
		t.fields = append(t.fields, f)
	}
	return errors.Join(problems...)
}

func structField(a *ast.Field) (f field, err error) {
	tag := ""
	if a.Tag != nil {
		if tag, err = strconv.Unquote(a.Tag.Value); err != nil {
			return f, err
		}
	}
	json := strings.Split(reflect.StructTag(tag).Get("json"), ",")
	f.name = json[0]
	text, markers, err := comment(a.Doc)
	if err != nil {
		return f, err
	}
	f.markers = markers
	if f.of, f.list, err = reference(a.Type); err != nil {
		return f, err
	}
	f.inline, f.metadata = len(json) > 1 && json[1] == "inline", f.of == "metav1.ObjectMeta" || f.of == "metav1.ListMeta"
	_, optional := find(markers, "optional")
	initial, hasDefault := find(markers, "kubebuilder:default")
	f.required = !optional && !hasDefault && !f.inline && !f.metadata
	f.doc, f.initial, f.change = sentences(oneLine(text))
	if hasDefault {
		f.initial = initial.value
	}
	return f, nil
}

// reference names a field's type. A pointer only tells what was left out from what is zero.
func reference(e ast.Expr) (of string, list bool, err error) {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name, false, nil
	case *ast.StarExpr:
		return reference(e.X)
	case *ast.ArrayType:
		of, _, err = reference(e.Elt)
		return of, true, err
	case *ast.MapType: // of strings, as JSON has them
		of, _, err = reference(e.Value)
		return "map of " + of, false, err
	case *ast.SelectorExpr:
		if pkg, ok := e.X.(*ast.Ident); ok {
			return pkg.Name + "." + e.Sel.Name, false, nil
		}
	}
	return "", false, fmt.Errorf("a type of the form %T is not known: teach hack/apidocs what it is called", e)
}
