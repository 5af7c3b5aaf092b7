// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/weir-storage/weir"

// goFile is one file of Go source.
type goFile struct {
	path string // from the root of the tree, with slashes
	text string
	ast  *ast.File // with comments, names not resolved
	set  *token.FileSet
}

func (f goFile) pkg() string     { return path.Dir(f.path) }
func (f goFile) isTest() bool    { return strings.HasSuffix(f.path, "_test.go") }
func (f goFile) generated() bool { return ast.IsGenerated(f.ast) }

// root finds the top of the source tree.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if mod, err := os.ReadFile(filepath.Join(dir, "go.mod")); err != nil || !strings.HasPrefix(string(mod), "module "+module+"\n") {
		t.Fatalf("find source tree: %s has no go.mod of %s: run this test where it is kept", dir, module)
	}
	return dir
}

// walk calls visit for every file of this module, with its path from the root. What Go would not
// look at is left out: hidden folders, testdata and other modules; and what git would not: built
// programs.
func walk(t *testing.T, visit func(name string)) {
	t.Helper()
	top := root(t)
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(top, p)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if !d.IsDir() {
			if d.Type().IsRegular() {
				visit(name)
			}
			return nil
		}
		base := d.Name()
		_, errMod := os.Stat(filepath.Join(p, "go.mod"))
		if name != "." && (strings.HasPrefix(base, ".") && base != ".ci" || base == "testdata" || errMod == nil) || name == "bin" ||
			name == "dist" {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// newFile parses a file of Go source.
func newFile(t *testing.T, name, text string) goFile {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return goFile{path: name, text: text, ast: file, set: set}
}

// tree is what goFiles found. Tests of this package do not run side by side.
var tree []goFile

// goFiles parses all Go source of the module, of every build tag, once.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	if tree != nil {
		return tree
	}
	var files []goFile
	walk(t, func(name string) {
		if !strings.HasSuffix(name, ".go") {
			return
		}
		files = append(files, newFile(t, name, read(t, name)))
	})
	if len(files) < 100 {
		t.Fatalf("found %d Go files: the walk misses most of the tree", len(files))
	}
	tree = files
	return files
}

// packages lists the folders that hold Go source.
func packages(files []goFile) []string {
	var all []string
	for _, f := range files {
		all = append(all, f.pkg())
	}
	slices.Sort(all)
	return slices.Compact(all)
}
