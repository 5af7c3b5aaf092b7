// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// covers reports whether pattern, which may end in "...", covers the package pkg.
func covers(pattern, pkg string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "..."); ok {
		return prefix == "" || strings.HasPrefix(pkg+"/", prefix)
	}
	return pattern == pkg
}

func anyCovers(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return covers(p, pkg) })
}

// rowOf finds the most specific row of pkg.
func rowOf(rows []row, pkg string) (row, bool) {
	var best row
	for _, r := range rows {
		exact := r.pkg == pkg
		if exact || covers(r.pkg, pkg) && len(r.pkg) > len(best.pkg) {
			best = r
		}
		if exact {
			break
		}
	}
	return best, best.pkg != ""
}

// hasPrefix reports whether the import path is one of the prefixes or below it. A prefix that ends
// in a slash is only the latter.
func hasPrefix(prefixes []string, imported string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		return imported == p || strings.HasPrefix(imported, strings.TrimSuffix(p, "/")+"/")
	})
}

// judge returns what is wrong with an import of package pkg, or "".
func judge(r row, pkg, imported string, test bool) string {
	if own, ok := strings.CutPrefix(imported, module+"/"); ok {
		switch {
		case own == pkg, anyCovers(r.project, own):
			return ""
		case test && (anyCovers(r.tests, own) || slices.Contains(fixtures, own)):
			return ""
		}
		return "not in the row of " + r.pkg + " in test/layout/table_test.go: " +
			"let the packages above hand over what is needed, or change docs/design/architecture.md and the row"
	}
	first, _, _ := strings.Cut(imported, "/")
	if !strings.Contains(first, ".") {
		return "" // the standard library
	}
	top, _, _ := strings.Cut(pkg, "/")
	if hasPrefix(kubernetesModules, imported) && !hasPrefix(notKubernetes, imported) && !slices.Contains(kubernetes, top) &&
		!slices.Contains(kubernetes, pkg) {
		return "only " + strings.Join(kubernetes, ", ") + " may import Kubernetes"
	}
	if r.outside != nil && !test && !hasPrefix(r.outside, imported) {
		return "the row of " + r.pkg + " in test/layout/table_test.go does not allow this module: " +
			"use the standard library, or change the row"
	}
	return ""
}

func TestImports(t *testing.T) {
	for _, f := range goFiles(t) {
		r, ok := rowOf(table, f.pkg())
		if !ok {
			continue // TestEveryPackageHasARow reports it
		}
		for _, spec := range f.ast.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if problem := judge(r, f.pkg(), imported, f.isTest()); problem != "" {
				t.Errorf("%s imports %s: %s", f.path, imported, problem)
			}
		}
	}
}

func TestEveryPackageHasARow(t *testing.T) {
	pkgs := packages(goFiles(t))
	for _, pkg := range pkgs {
		if _, ok := rowOf(table, pkg); !ok {
			t.Errorf("package %s has no row: add one to test/layout/table_test.go that says what it may import "+
				"(see the comment of package layout)", pkg)
		}
	}
	for _, r := range table {
		if !slices.ContainsFunc(pkgs, func(pkg string) bool { return covers(r.pkg, pkg) }) {
			t.Errorf("the row of %s in test/layout/table_test.go has no package: remove it", r.pkg)
		}
	}
	for _, name := range fixtures {
		if !slices.Contains(pkgs, name) {
			t.Errorf("fixture %s in test/layout/table_test.go is no package: remove it", name)
		}
	}
}

// TestJudge makes sure that the check can fail.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		pkg, imported string
		test, good    bool
	}{
		{pkg: "volume", imported: "errors", good: true},
		{pkg: "volume", imported: "github.com/google/uuid"},
		{pkg: "volume", imported: module + "/engine"},
		{pkg: "volume", imported: module + "/volume/memvol"},
		{pkg: "volume", imported: module + "/volume/memvol", test: true, good: true},
		{pkg: "volume", imported: module + "/volume", test: true, good: true},
		{pkg: "engine", imported: module + "/engine/meta/cryptfs", good: true},
		{pkg: "engine", imported: module + "/gateway/nfs", test: true},
		{pkg: "gateway/nfs", imported: module + "/engine"},
		{pkg: "federation/spec", imported: "sigs.k8s.io/yaml", good: true},
		{pkg: "engine", imported: "sigs.k8s.io/yaml", good: true},
		{pkg: "engine", imported: "k8s.io/api/core/v1"},
		{pkg: "engine", imported: "sigs.k8s.io/yamlish", test: true},
		{pkg: "test/e2e/stage", imported: module + "/volume"},
		{pkg: "test/e2e/elsewhere", imported: module + "/volume", good: true},
		{pkg: "hack/anything", imported: module + "/volume"},
	} {
		r, ok := rowOf(table, c.pkg)
		if !ok {
			t.Fatalf("no row for %s", c.pkg)
		}
		if problem := judge(r, c.pkg, c.imported, c.test); (problem == "") != c.good {
			t.Errorf("%s imports %s (test: %v): %q, want good = %v", c.pkg, c.imported, c.test, problem, c.good)
		}
	}
	if r, ok := rowOf(table, "newpackage"); ok {
		t.Errorf("a package that is not in the table has the row %s", r.pkg)
	}
}
