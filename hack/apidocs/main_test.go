// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// small is an API of one kind.
const small = `// SPDX-License-Identifier: Apache-2.0

// Package v1 has one kind.
//
//	kind   scope
//	Thing  cluster
//
// It says what a thing is.
//
// +groupName=example.org
package v1

// Conditions.
const (
	// ConditionReady sums up. Polarity: True is good.
	ConditionReady = "Ready"
	// ReasonOff, of Ready with False: it is switched off.
	ReasonOff = "Off"
	// Group is the API group.
	Group = "example.org"
	// Label is on things.
	Label = Group + "/label"
)

// Mode is how it works.
// +kubebuilder:validation:Enum=Slow;Fast
type Mode string

// Modes.
const (
	Slow Mode = "Slow"
	Fast Mode = "Fast" // with more noise
)

// Part is inside.
// +kubebuilder:validation:XValidation:rule="self.a || self.b",message="write a, or b"
type Part struct {
	// One of two. Default Slow. Live: a thing that runs goes on.
	// +optional
	A Mode ` + "`json:\"a,omitempty\"`" + `
	// The other, b|c. NewDataOnly.
	// +kubebuilder:validation:Pattern=` + "`^[a-z]([a-z])$`" + `
	B string ` + "`json:\"b\"`" + `
}

// ThingSpec asks for one.
type ThingSpec struct {
	// What it is made of.
	// +optional
	// +kubebuilder:validation:MaxItems=3
	Parts []Part ` + "`json:\"parts,omitempty\"`" + `
	// How many. Immutable.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="make another"
	Count int32 ` + "`json:\"count\"`" + `
}

// ThingStatus is known of it.
type ThingStatus struct {
	// Whether it is there.
	// +optional
	There bool ` + "`json:\"there,omitempty\"`" + `
	// Whose it is.
	// +optional
	Of Name ` + "`json:\"of,omitempty\"`" + `
}

// Name is a name.
// +kubebuilder:validation:MaxLength=1
// +kubebuilder:validation:Pattern=` + "`^[a-z]$`" + `
type Name string

// Thing is a thing. There may be many.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=th,categories=all
// +kubebuilder:printcolumn:name="Count",type=integer,JSONPath=` + "`.spec.count`" + `,priority=1
type Thing struct {
	// +optional
	Spec   ThingSpec   ` + "`json:\"spec,omitzero\"`" + `
	// +optional
	Status ThingStatus ` + "`json:\"status,omitzero\"`" + `
}
`

func write(t *testing.T, text string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "v1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "types.go"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestRun(t *testing.T) {
	from := write(t, small)
	to := filepath.Join(t.TempDir(), "api.md")
	for _, step := range []struct{ check, current bool }{{true, false}, {false, false}, {true, true}, {false, true}} {
		if current, err := run(from, to, step.check); err != nil || current != step.current {
			t.Fatalf("run with check %v: current %v, %v; want %v", step.check, current, err, step.current)
		}
	}
	text, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# The API: example.org/v1\n",
		"| [Thing](#thing) | cluster | `th` | Thing is a thing. |",
		"| Count | `.spec.count` | with `-o wide` |",
		"| `parts` | list of object |  | at most 3 items |  | What it is made of. |",
		"| `parts[].a` | string | `Slow` | `Slow`, `Fast` | Live | One of two. A thing that runs goes on. |",
		"| `parts[].b` | string | required | <code>^&#91;a-z]&#40;&#91;a-z])$</code> | NewDataOnly | The other, b\\|c. |",
		"| `count` | integer | required | at least 1 | Immutable | How many. |",
		"| `there` | boolean |  |  | Whether it is there. |",
		"- `count`: make another\n  (`self == oldSelf`)",
		"- `parts[]`: write a, or b\n  (`self.a || self.b`)",
		"| NewDataOnly | holds for",
		"| `of` | [Name](#name) |  |  | Whose it is. |",
		"### Name\n\nName is a name.\n\nA string: at most 1 character; `^[a-z]$`.\n",
		"Values of `parts[].a`: `Fast`: with more noise.",
		"| `Ready` | True is good | Sums up. |",
		"| `Off` | of Ready with False | It is switched off. |",
		"| `example.org/label` | On things. |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
}

// What the page would be silent about is refused, by name.
func TestRefusals(t *testing.T) {
	for _, c := range []struct{ name, old, by, want string }{
		{"field without comment", "	// Whether it is there.\n", "", "field ThingStatus.there: no comment"},
		{"change not said", " NewDataOnly.", "", "field Part.b: no sentence that begins with Live"},
		{"unknown marker", "+kubebuilder:validation:Minimum=1", "+kubebuilder:validation:MultipleOf=2",
			"ThingSpec.count: marker +kubebuilder:validation:MultipleOf=2: it is not known"},
		{"open quotes", `message="make another"`, `message="make another`, "its quotes are not closed"},
		{"unknown type", "Count int32", "Count float32", "type float32 is not known"},
		{"form of a type", "Count int32", "Count chan int", "*ast.ChanType is not known"},
		{"polarity", " Polarity: True is good.", "", "ConditionReady: no sentence that begins with Polarity"},
		{"constant", "	// Label is on things.\n", "", "constant Label: no comment"},
		{"kind that is not listed", "//	Thing  cluster\n", "", "kind Thing is not in the table"},
		{"no API", "// +groupName=example.org\n", "", "root of the source tree"},
		{"in itself", "Parts []Part", "Parts []ThingSpec", "ThingSpec is inside of itself"},
	} {
		text := strings.Replace(small, c.old, c.by, 1)
		if text == small {
			t.Fatalf("%s: nothing was replaced", c.name)
		}
		if _, err := run(write(t, text), filepath.Join(t.TempDir(), "api.md"), true); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}

// A structure that is used twice has a table of its own, to which both lead.
func TestShared(t *testing.T) {
	text := strings.Replace(small, "	// Whether it is there.\n",
		"	// What is there.\n	// +optional\n	Part Part `json:\"part,omitempty\"`\n	// Whether it is there.\n", 1)
	s, err := read(write(t, text))
	if err != nil {
		t.Fatal(err)
	}
	page := string(s.page())
	for _, want := range []string{"| `parts` | list of [Part](#part) |", "| `part` | [Part](#part) |", "### Part\n", "| `a` | string |"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "parts[].a") {
		t.Error("a structure with a table of its own is in another too")
	}
}
