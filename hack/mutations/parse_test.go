// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"
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
