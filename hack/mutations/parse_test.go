// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	const good = "# why\nrule: 2\npackage: ./a\nrun: TestA\nargs: -seeds 3\n\n=== a/a.go\n--- old\none\n\ntwo\n--- new\n--- end\n\n" +
		"=== a/b.go\n--- old\nx\n--- new\ny\n--- end\n"
	got, err := parse("n", good)
	want := mutation{name: "n", rule: "2", pkg: "./a", run: "TestA", args: []string{"-seeds", "3"},
		edits: []edit{{"a/a.go", "one\n\ntwo\n", ""}, {"a/b.go", "x\n", "y\n"}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("parse: %+v, %v\nwant %+v", got, err, want)
	}
	for _, bad := range []string{
		"",
		"rule: 2\npackage: ./a\nrun: TestA\n",
		"rule: 2\npackage: ./a\nrun: TestA\n=== a.go\n--- old\nx\n--- new\ny\n",
		"rule: 2\npackage: ./a\nrun: TestA\n=== a.go\n--- old\nx\n--- new\nx\n--- end\n",
		"rule: 2\npackage: ./a\nrun: TestA\n=== a.go\n--- new\nx\n--- end\n",
		"rule: 2\npackage: ./a\nrun: TestA\nold: x\n=== a.go\n--- old\nx\n--- new\n--- end\n",
		"package: ./a\nrun: TestA\n=== a.go\n--- old\nx\n--- new\n--- end\n",
	} {
		if m, err := parse("n", bad); err == nil {
			t.Errorf("parse(%q) = %+v, want an error", bad, m)
		}
	}
}

// TestEveryRuleHasAMutation: each rule of docs/design/protocol.md that is built is undone by a
// mutation, so that a test must notice.
func TestEveryRuleHasAMutation(t *testing.T) {
	// Pins of clones are not built yet.
	later := map[int]bool{13: true}
	page, err := os.ReadFile("../../docs/design/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, m := range mutations(t) {
		has[m.rule] = true
	}
	rules := 0
	for _, found := range regexp.MustCompile(`(?m)^(\d+)\. `).FindAllStringSubmatch(string(page), -1) {
		n, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		rules++
		if n != rules {
			t.Errorf("rule %d follows rule %d", n, rules-1)
		}
		if name := "protocol-" + found[1]; has[name] == later[n] {
			t.Errorf("%s: has a mutation: %t; is to be built later: %t", name, has[name], later[n])
		}
	}
	if rules < 27 {
		t.Errorf("the page has %d rules", rules)
	}
}

// mutations returns all of them.
func mutations(t *testing.T) []mutation {
	t.Helper()
	all, err := load("../..", nil)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestEveryMutationFits: the text that a mutation replaces is there, once, and so is its test.
func TestEveryMutationFits(t *testing.T) {
	for _, m := range mutations(t) {
		for _, e := range m.edits {
			text, err := os.ReadFile(filepath.Join("../..", e.file))
			if err != nil {
				t.Errorf("%s: %v", m.name, err)
			} else if n := strings.Count(string(text), e.old); n != 1 {
				t.Errorf("%s: %s has the old text %d times, want once", m.name, e.file, n)
			}
		}
		files, err := filepath.Glob(filepath.Join("../..", m.pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var tests strings.Builder
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			tests.Write(text)
		}
		for _, name := range strings.Split(strings.Trim(m.run, "^$"), "|") {
			name, _, _ = strings.Cut(name, "/")
			if !regexp.MustCompile(`(?m)^func ` + strings.Trim(name, "^$") + `\w*\(t \*testing\.T\)`).MatchString(tests.String()) {
				t.Errorf("%s: %s has no test %s", m.name, m.pkg, name)
			}
		}
	}
}
