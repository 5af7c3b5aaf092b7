// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
)

// mutation is one mistake and the test that must find it.
type mutation struct {
	name  string
	rule  string // its number in docs/concepts.md
	pkg   string
	run   string // name of the test
	args  []string
	edits []edit
}

// edit replaces lines of a file.
type edit struct{ file, old, new string }

// parse reads a mutation's file; see the comment of the package.
func parse(name, text string) (mutation, error) {
	m := mutation{name: name}
	part := ""
	for i, line := range strings.Split(text, "\n") {
		at := func(format string, a ...any) error { return fmt.Errorf("line %d: %s", i+1, fmt.Sprintf(format, a...)) }
		file, isFile := strings.CutPrefix(line, "=== ")
		switch {
		case isFile && (part == "" || part == "end"):
			m.edits = append(m.edits, edit{file: file})
			part = "file"
		case line == "--- old" && part == "file":
			part = "old"
		case line == "--- new" && part == "old":
			part = "new"
		case line == "--- end" && part == "new":
			part = "end"
		case part == "old":
			m.edits[len(m.edits)-1].old += line + "\n"
		case part == "new":
			m.edits[len(m.edits)-1].new += line + "\n"
		case line == "", strings.HasPrefix(line, "#"):
		case part == "":
			key, value, _ := strings.Cut(line, ":")
			value = strings.TrimSpace(value)
			switch key {
			case "rule":
				m.rule = value
			case "package":
				m.pkg = value
			case "run":
				m.run = value
			case "args":
				m.args = strings.Fields(value)
			default:
				return m, at("unknown field %q: there are rule, package, run and args", key)
			}
		default:
			return m, at("%q is not expected here", line)
		}
	}
	switch {
	case m.rule == "" || m.pkg == "" || m.run == "":
		return m, errors.New("rule, package and run must be given")
	case part != "end":
		return m, errors.New("no edit, or one without --- end")
	}
	for _, e := range m.edits {
		if e.old == "" || e.old == e.new {
			return m, fmt.Errorf("the edit of %s changes nothing", e.file)
		}
	}
	return m, nil
}
