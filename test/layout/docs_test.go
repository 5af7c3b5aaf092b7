// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
	"testing"
)

// life matches the pages that follow one request function by function.
const life = "docs/design/life-of-*.md"

// named is a word in backticks, and function such a word that names a function or method:
// pkg/path.Name or pkg/path.Type.Method.
var (
	named    = regexp.MustCompile("`([^`\n]+)`")
	function = regexp.MustCompile(`^([a-z][a-z0-9-]*(?:/[a-z0-9-]+)*)\.([A-Za-z]\w*(?:\.[A-Za-z]\w*)?)$`)
)

// mentions returns the functions that a page names, each as the folder of its package and the name
// in it. A word whose folder has no package of this module, such as a file's name, is none.
func mentions(page string, isPackage func(folder string) bool) (out [][2]string) {
	for _, m := range named.FindAllStringSubmatch(page, -1) {
		if f := function.FindStringSubmatch(m[1]); f != nil && f[2] != "go" && isPackage(f[1]) {
			out = append(out, [2]string{f[1], f[2]})
		}
	}
	return out
}

// declares reports whether a file declares a function Name or a method Type.Method.
func declares(file *ast.File, name string) bool {
	want, method, isMethod := strings.Cut(name, ".")
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if !isMethod && d.Recv == nil && d.Name.Name == want {
				return true
			}
			if isMethod && d.Recv != nil && d.Name.Name == method && receiver(d.Recv.List[0].Type) == want {
				return true
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if t, ok := s.(*ast.TypeSpec); ok && t.Name.Name == want && isMethod && hasMethod(t.Type, method) {
					return true
				}
			}
		}
	}
	return false
}

// receiver is the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// hasMethod reports whether a type is an interface that lists a method itself.
func hasMethod(e ast.Expr, method string) bool {
	i, ok := e.(*ast.InterfaceType)
	if !ok {
		return false
	}
	for _, f := range i.Methods.List {
		for _, n := range f.Names {
			if n.Name == method {
				return true
			}
		}
	}
	return false
}

// TestLives checks that each function that the pages name is declared in that package.
func TestLives(t *testing.T) {
	files := map[string][]goFile{}
	for _, f := range goFiles(t) {
		if !f.isTest() {
			files[f.pkg()] = append(files[f.pkg()], f)
		}
	}
	parsed := map[string][]*ast.File{}
	exists := func(folder, name string) bool {
		if parsed[folder] == nil {
			for _, f := range files[folder] {
				a, err := parser.ParseFile(token.NewFileSet(), f.path, f.text, parser.SkipObjectResolution)
				if err != nil {
					t.Fatal(err)
				}
				parsed[folder] = append(parsed[folder], a)
			}
		}
		for _, a := range parsed[folder] {
			if declares(a, name) {
				return true
			}
		}
		return false
	}
	isPackage := func(folder string) bool { return files[folder] != nil }
	pages := 0
	walk(t, func(name string) {
		if ok, err := path.Match(life, name); err != nil || !ok {
			return
		}
		pages++
		all := mentions(read(t, name), isPackage)
		if len(all) < 10 {
			t.Errorf("%s names %d functions: name each as `package/path.Function` or `package/path.Type.Method`", name, len(all))
		}
		for _, m := range all {
			if !exists(m[0], m[1]) {
				t.Errorf("%s names `%s.%s`, which package %s does not declare: follow the code again", name, m[0], m[1], m[0])
			}
		}
		for _, m := range named.FindAllStringSubmatch(read(t, name), -1) {
			f := function.FindStringSubmatch(m[1])
			if f != nil && strings.Contains(f[1], "/") && !isPackage(f[1]) && path.Ext(m[1]) != ".go" {
				t.Errorf("%s names `%s`: this module has no package %s", name, m[1], f[1])
			}
		}
	})
	if pages == 0 {
		t.Errorf("there is no page %s", life)
	}
}

// TestLivesCanFail makes sure that the check of functions can fail.
func TestLivesCanFail(t *testing.T) {
	const page = "`a/b.F` calls `a/b.T.M`, see `a/b.go`, `kubectl apply`, `a/b.T.M()`, `x.Y` and `a/b.I.N`"
	got := mentions(page, func(folder string) bool { return folder == "a/b" })
	want := [][2]string{{"a/b", "F"}, {"a/b", "T.M"}, {"a/b", "I.N"}}
	have := map[[2]string]bool{}
	for _, m := range got {
		have[m] = true
	}
	for _, m := range want {
		if !have[m] {
			t.Errorf("%v is not found in %v", m, got)
		}
	}
	if len(got) != len(want) {
		t.Errorf("found %v, want %v", got, want)
	}
	const text = "package b\nfunc F() {}\nfunc (t *T[K]) M() {}\ntype T[K any] struct{ X int }\ntype I interface{ N() }\n"
	file, err := parser.ParseFile(token.NewFileSet(), "b.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for name, there := range map[string]bool{"F": true, "T.M": true, "I.N": true, "M": false,
		"T.F": false, "T.X": false, "I.M": false, "G": false, "T": false} {
		if declares(file, name) != there {
			t.Errorf("%s: declared is %v", name, !there)
		}
	}
}
