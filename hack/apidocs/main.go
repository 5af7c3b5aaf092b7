// SPDX-License-Identifier: Apache-2.0

// Command apidocs writes docs/reference/api.md, the reference of storage.weir.dev, from the Go
// source of api/v1alpha1. The comments say what things mean. The markers, from which controller-gen
// makes the definitions, say what is allowed.
//
//	go run ./hack/apidocs           write the page
//	go run ./hack/apidocs -check    only report whether it is current, with status 1 if it is not
//
// Run it in the root of the source tree. Besides markers it reads these parts of comments:
//
//   - A field's sentence that begins with Default says what it is when it is left out; a marker
//     comes first.
//   - A field's sentence that begins with Live, NewDataOnly or Immutable says what a change does.
//     Each field of a spec has one, or is inside of one that has.
//   - A condition's sentence that begins with Polarity says which of its states is the good one.
//   - What stands between a reason's name and the first colon says of which condition it is, and
//     with which state.
//
// The command refuses a field without a comment, a field of a spec without a word on changes, and a
// marker that it does not know: a reference must not be silent about anything. A test compares the
// page with the definitions in config/crd.
//
// We do not use crd-ref-docs of Elastic, since it leaves out CEL rules, printed columns and
// constants.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
)

const (
	from = "api/v1alpha1"
	to   = "docs/reference/api.md"
)

func main() {
	check := flag.Bool("check", false, "change nothing, and tell whether the page is current")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "apidocs: unknown argument %q: there is only the flag -check\n", flag.Arg(0))
		os.Exit(2)
	}
	current, err := run(from, to, *check)
	if err != nil {
		fmt.Fprintln(os.Stderr, "apidocs:", err)
		os.Exit(1)
	}
	if *check && !current {
		fmt.Printf("%s: not what %s gives: run make generate\n", to, from)
		os.Exit(1)
	}
}

// run writes the page if it is not what the source gives, and reports whether it was current. With
// check it writes nothing.
func run(from, to string, check bool) (current bool, err error) {
	a, err := read(from)
	if err != nil {
		return false, err
	}
	if err := a.check(); err != nil {
		return false, err
	}
	text := a.page()
	old, err := os.ReadFile(to)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	if current = bytes.Equal(old, text); current || check {
		return current, nil
	}
	return false, os.WriteFile(to, text, 0o644)
}
