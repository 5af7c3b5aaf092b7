// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// tools are packages that are there for tests as fixtures are, so that their exported names need no
// use, and their mention of another package's name is none.
var tools = []string{
	"gateway/nfs/client", // a client for tests and for the tools of test/e2e
	"test/...",
}

// tables are packages with the whole of a table that others wrote or read, used or not, so that
// their
// constants need no use, with the reason.
var tables = map[string]string{
	"api/v1alpha1":    "the values of its fields are for those who write objects",
	"gateway/nfs/xdr": "it has the numbers of RFC 8881, 7862, 8275 and 8276",
}

// kept are exported names that no code uses, with the reason to keep them: package.Name or
// package.Type.Method, and package.Type for all methods of a type that implements an interface of
// another module.
var kept = map[string]string{
	"csi-driver.Identity":          "it implements the Identity service of the CSI specification",
	"csi-driver/controller.Server": "it implements the Controller service of the CSI specification",
	"csi-driver/node.Server":       "it implements the Node service of the CSI specification",
	"engine/meta/cryptfs.FS":       "it implements vfs.FS of Pebble",
	"cachepool/failstop.FS":        "it implements vfs.FS of Pebble",
	"hack/image.Manifest":          "it implements remote.Taggable of go-containerregistry",

	"cachepool.Identity.NewIncarnation":     "the contract has it for a pool whose content is in doubt; no process asks for it yet",
	"engine/checkpoint.Manifest.Diff":       "a home condemns what it returns, as soon as there are condemn records (ADR 42)",
	"federation.ControlStore.DeleteControl": "the suite of a registry makes a record go back behind a guard with it",
	"gateway/nfs/xdr.Decoder.ReplyHeader":   "gateway/nfs/client reads replies with it",
	"gateway/nfs/xdr.ReadRecord":            "gateway/nfs/client reads replies with it",
	"hack/image.Archive.Blobs":              "the registry that test/e2e/kube runs serves them",
	"hack/image.OpenArchive":                "the registry that test/e2e/kube runs serves the archive",
	"volume/locktable.Table.ReleaseFile":    "volume/memvol, the contract's model, drops the locks of a removed file by it",
}

// called are methods that the standard library, and Prometheus' client, call through their
// interfaces, so that no file need mention them.
var called = []string{
	"As", "Error", "Is", "Unwrap", // errors
	"MarshalJSON", "UnmarshalJSON", // encoding/json
	"MarshalText", "UnmarshalText", // encoding
	"String",              // fmt
	"Collect", "Describe", // prometheus.Collector, of whoever reads
}

// export is an exported name that is declared in file, perhaps as a method of a type.
type export struct {
	pkg, recv, name string
	inInterface     bool // a method that an interface lists
	constant        bool
	file            goFile
	pos             token.Pos
}

func (e export) String() string {
	if e.recv != "" {
		return e.pkg + "." + e.recv + "." + e.name
	}
	return e.pkg + "." + e.name
}

// exports lists the exported names of a file: functions, types, constants, variables, and of
// exported types the methods, also those that an interface lists. Fields are left out.
func exports(f goFile) (out []export) {
	add := func(recv string, id *ast.Ident, inInterface, constant bool) {
		if id.IsExported() && (recv == "" || ast.IsExported(recv)) {
			out = append(out, export{f.pkg(), recv, id.Name, inInterface, constant, f, id.Pos()})
		}
	}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			recv := ""
			if d.Recv != nil {
				recv = receiver(d.Recv.List[0].Type)
			}
			add(recv, d.Name, false, false)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					for _, id := range s.Names {
						add("", id, false, d.Tok == token.CONST)
					}
				case *ast.TypeSpec:
					add("", s.Name, false, false)
					if i, ok := s.Type.(*ast.InterfaceType); ok {
						for _, m := range i.Methods.List {
							for _, id := range m.Names {
								add(s.Name.Name, id, true, false)
							}
						}
					}
				}
			}
		}
	}
	return out
}

// uses are the names that code mentions: package-level ones as "package.Name", what may be a method
// as ".Name".
type uses map[string]bool

// version matches the last element of an import path that is no package's name.
var version = regexp.MustCompile(`^v[0-9]+$`)

// reader collects what one file mentions.
type reader struct {
	uses
	pkg     string
	imports map[string]string // packages by their name in the file: of this module the folder
	own     [2]string         // what the present declaration itself is, which it cannot use: as in uses
}

// mention adds what a file mentions. names has the name of each package by its folder.
//
// A declaration is no use of what it declares. A type's methods are none of the type, and a method
// that calls another of its own name is none of that: it may only pass on what nobody asks for.
func (u uses) mention(f goFile, names map[string]string) {
	r := reader{uses: u, pkg: f.pkg(), imports: map[string]string{}}
	for _, spec := range f.ast.Imports {
		folder, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(folder)
		if own, ok := strings.CutPrefix(folder, module+"/"); ok {
			folder, name = own, names[own]
		} else if version.MatchString(name) {
			name = path.Base(path.Dir(folder))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		r.imports[name] = folder
	}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			r.own = [2]string{r.pkg + "." + d.Name.Name}
			if d.Recv != nil {
				r.own = [2]string{r.pkg + "." + receiver(d.Recv.List[0].Type), "." + d.Name.Name}
			}
			r.read(d.Type)
			if d.Body != nil {
				r.read(d.Body)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					r.own = [2]string{r.pkg + "." + s.Name.Name}
					if s.TypeParams != nil {
						r.read(s.TypeParams)
					}
					r.read(s.Type)
				case *ast.ValueSpec:
					r.own = [2]string{}
					if s.Type != nil {
						r.read(s.Type)
					}
					for _, v := range s.Values {
						r.read(v)
					}
				}
			}
		}
	}
}

// add adds one name.
func (r *reader) add(name string) {
	if !slices.Contains(r.own[:], name) {
		r.uses[name] = true
	}
}

// read adds what a part of a declaration mentions.
func (r *reader) read(part ast.Node) {
	ast.Inspect(part, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && r.imports[x.Name] != "" {
				r.add(r.imports[x.Name] + "." + n.Sel.Name)
				return false
			}
			r.read(n.X)
			r.add("." + n.Sel.Name)
			return false
		case *ast.Field: // names of fields, parameters and an interface's methods are declarations
			r.read(n.Type)
			return false
		case *ast.Ident:
			r.add(r.pkg + "." + n.Name)
		}
		return true
	})
}

// unused returns what is wrong with the exported names of files: which of them only tests use, and
// which of keep need not be kept.
func unused(files []goFile, forTests []string, tables, keep map[string]string) (problems []string) {
	names := map[string]string{}
	var all []export
	listed := map[string]bool{} // methods that interfaces list, as ".Name"
	for _, f := range files {
		if f.isTest() {
			continue
		}
		names[f.pkg()] = f.ast.Name.Name
		for _, e := range exports(f) {
			all = append(all, e)
			if e.inInterface {
				listed["."+e.name] = true
			}
		}
	}
	byCode, byTests := uses{}, uses{}
	for _, f := range files {
		if f.isTest() || anyCovers(forTests, f.pkg()) {
			byTests.mention(f, names)
		} else {
			byCode.mention(f, names)
		}
	}
	idle := map[string]bool{}
	for _, e := range all {
		key := e.String()
		if e.recv != "" {
			key = "." + e.name
		}
		if byCode[key] || e.recv != "" && (slices.Contains(called, e.name) || !e.inInterface && listed[key]) {
			continue
		}
		if e.file.generated() || e.file.ast.Name.Name == "main" || anyCovers(forTests, e.pkg) || e.constant && tables[e.pkg] != "" {
			continue
		}
		idle[e.String()] = true
		if e.recv != "" && !e.inInterface {
			idle[e.pkg+"."+e.recv] = true
		}
		if keep[e.String()] != "" || e.recv != "" && keep[e.pkg+"."+e.recv] != "" {
			continue
		}
		who := "nothing uses it"
		if byTests[key] {
			who = "only tests use it"
		}
		at := e.file.set.Position(e.pos)
		problems = append(problems, fmt.Sprintf("%s:%d: %s: %s: remove it, or unexport it if its package's tests need it",
			at.Filename, at.Line, e, who))
	}
	for _, name := range slices.Sorted(maps.Keys(keep)) {
		if !idle[name] || keep[name] == "" {
			problems = append(problems, fmt.Sprintf("%s is used, is not there or has no reason: remove it from kept in "+
				"test/layout/exports_test.go", name))
		}
	}
	return problems
}

func TestExportsAreUsed(t *testing.T) {
	files := goFiles(t)
	pkgs := packages(files)
	for _, list := range [][]string{tools, slices.Sorted(maps.Keys(tables))} {
		for _, pattern := range list {
			if !slices.ContainsFunc(pkgs, func(pkg string) bool { return covers(pattern, pkg) }) {
				t.Errorf("%s in test/layout/exports_test.go is no package: remove it", pattern)
			}
		}
	}
	for _, problem := range unused(files, append(tools, fixtures...), tables, kept) {
		t.Error(problem)
	}
}

// TestExportsAreUsedCanFail makes sure that the check of exported names can fail.
func TestExportsAreUsedCanFail(t *testing.T) {
	user := "package b\n\nimport \"" + module + "/a\"\n\n"
	for _, c := range []struct {
		name  string
		a     string   // of package a
		files []string // other files, each a path, a colon and the text
		keep  map[string]string
		want  []string // the names with a problem, in order
	}{
		{name: "nothing exported", a: "func f() {}"},
		{name: "unused", a: "func F() {}\ntype T int\nconst C = 1\nvar V int", want: []string{"a.F", "a.T", "a.C", "a.V"}},
		{name: "used by its package", a: "func F() {}\nfunc g() { F() }"},
		{name: "used by another", a: "func F() {}", files: []string{"b/b.go:" + user + "var _ = a.F"}},
		{name: "used by another name", a: "func F() {}",
			files: []string{"b/b.go:package b\n\nimport z \"" + module + "/a\"\n\nvar _ = z.F"}},
		{name: "another package's of the same name", a: "func F() {}",
			files: []string{"c/c.go:package c\n\nfunc F() {}\nfunc g() { F() }"}, want: []string{"a.F"}},
		{name: "used by its test", a: "func F() {}", files: []string{"a/a_test.go:package a\n\nvar _ = F"}, want: []string{"a.F"}},
		{name: "used by a fixture", a: "func F() {}", files: []string{"fix/b.go:" + user + "var _ = a.F"}, want: []string{"a.F"}},
		{name: "a fixture's", files: []string{"fix/b.go:package fix\n\nfunc F() {}"}},
		{name: "a program's", files: []string{"p/p.go:package main\n\nfunc F() {}"}},
		{name: "a table's", files: []string{"api/b.go:package api\n\nconst C = 1\nfunc F() {}"}, want: []string{"api.F"}},
		{name: "generated", files: []string{"g/g.go:// Code generated by a test. DO NOT EDIT.\n\npackage g\n\nfunc F() {}"}},
		{name: "calls itself", a: "func F() { F() }", want: []string{"a.F"}},
		{name: "known to its methods", a: "type T int\nfunc (t *T) m() { *t = T(1) }", want: []string{"a.T"}},
		{name: "a field's name", a: "type T int\nvar x struct{ T int }", want: []string{"a.T"}},
		{name: "method", a: "type T int\nvar x T\nfunc (T) M() {}", want: []string{"a.T.M"}},
		{name: "method of a generic type", a: "type T[K any] struct{}\nvar x T[int]\nfunc (*T[K]) M() {}", want: []string{"a.T.M"}},
		{name: "method that is called", a: "type T int\nvar x T\nfunc (T) M() {}\nfunc g() { x.M() }"},
		{name: "method that is passed on", a: "type T struct{ t *T }\nvar x T\nfunc (t T) M() { t.t.M() }", want: []string{"a.T.M"}},
		{name: "function of another module", a: "import \"x.example/y/v2\"\ntype T int\nvar x T\nfunc (T) M() {}\nfunc g() { y.M() }",
			want: []string{"a.T.M"}},
		{name: "method of an unexported type", a: "type t int\nfunc (t) M() {}"},
		{name: "method of the standard library", a: "type T int\nvar x T\nfunc (T) String() string { return \"\" }"},
		{name: "interface", a: "type I interface{ M() }\nvar x I\ntype T int\nvar y T\nfunc (T) M() {}", want: []string{"a.I.M"}},
		{name: "interface whose method is called",
			a: "type I interface{ M() }\nvar x I\ntype T int\nvar y T\nfunc (T) M() {}\nfunc g() { x.M() }"},
		{name: "kept", a: "func F() {}", keep: map[string]string{"a.F": "a reason"}},
		{name: "kept type", a: "type T int\nvar x T\nfunc (T) M() {}", keep: map[string]string{"a.T": "a reason"}},
		{name: "kept without a reason", a: "func F() {}", keep: map[string]string{"a.F": ""}, want: []string{"a.F", "a.F"}},
		{name: "kept without need", a: "func F() {}\nfunc g() { F() }", keep: map[string]string{"a.F": "a reason"}, want: []string{"a.F"}},
		{name: "kept and not there", keep: map[string]string{"a.F": "a reason"}, want: []string{"a.F"}},
	} {
		files := []goFile{newFile(t, "a/a.go", "package a\n\n"+c.a+"\n")}
		for _, f := range c.files {
			name, text, _ := strings.Cut(f, ":")
			files = append(files, newFile(t, name, text+"\n"))
		}
		problems := unused(files, []string{"fix"}, map[string]string{"api": "a reason"}, c.keep)
		ok := len(problems) == len(c.want)
		for i := range problems {
			ok = ok && i < len(c.want) && strings.Contains(problems[i], c.want[i])
		}
		if !ok {
			t.Errorf("%s: found %q, want problems of %q", c.name, problems, c.want)
		}
	}
}
