// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
	"testing"
	"unicode/utf8"
)

// Widths in columns of whole lines, with a tab stop every four columns.
const (
	maxComment = 100
	maxCode    = 140
	tabStop    = 4
)

// width is the number of columns of a line.
func width(line string) (n int) {
	for line != "" {
		r, size := utf8.DecodeRuneInString(line)
		line = line[size:]
		if r == '\t' {
			n += tabStop - n%tabStop
		} else {
			n++
		}
	}
	return n
}

// free reports whether a comment line may have any width: tools read it as one line (directives
// such as go:build, markers such as +kubebuilder), or it has an address, which cannot be broken.
func free(line string) bool {
	text := strings.TrimSpace(line)
	for _, prefix := range []string{"//go:", "//nolint", "// +"} {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return strings.Contains(text, "://")
}

// wide returns what is wrong with the widths of a file's lines. A comment line is one on which
// nothing but a comment stands; a comment behind code is a part of the code's line.
//
// In tests, the lines inside of a raw string that spans several have any width: they are data, such
// as the output of a program, which a break would change.
func wide(f goFile) (problems []string) {
	if f.generated() {
		return nil
	}
	all := strings.Split(f.text, "\n")
	comment, data := make([]bool, len(all)+1), make([]bool, len(all)+1) // by line, from 1
	at := func(p token.Pos) token.Position { return f.set.PositionFor(p, false) }
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			first, last := at(c.Pos()), at(c.End()).Line
			if strings.TrimSpace(all[first.Line-1][:first.Column-1]) == "" {
				comment[first.Line] = true
			}
			for i := first.Line + 1; i <= last; i++ {
				comment[i] = true
			}
		}
	}
	if f.isTest() {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING && strings.Contains(s.Value, "\n") {
				for i := at(s.Pos()).Line; i <= at(s.End()).Line; i++ {
					data[i] = true
				}
			}
			return true
		})
	}
	for i, line := range all {
		switch n := width(line); {
		case data[i+1]:
		case comment[i+1] && n > maxComment && !free(line):
			problems = append(problems, fmt.Sprintf("%s:%d: a comment of %d columns, at most %d are allowed: break it, or say it shorter",
				f.path, i+1, n, maxComment))
		case !comment[i+1] && n > maxCode:
			problems = append(problems, fmt.Sprintf("%s:%d: code of %d columns, at most %d are allowed: break the line",
				f.path, i+1, n, maxCode))
		}
	}
	return problems
}

func TestLinesAreNarrow(t *testing.T) {
	for _, f := range goFiles(t) {
		for _, problem := range wide(f) {
			t.Error(problem)
		}
	}
}

// TestLinesAreNarrowCanFail makes sure that the check of widths can fail.
func TestLinesAreNarrowCanFail(t *testing.T) {
	// line is a line of n columns that begins with text.
	line := func(text string, n int) string { return text + strings.Repeat("x", n-width(text)) }
	raw := "var a = `\n" + line("// ", maxCode+1) + "\n`"
	for _, c := range []struct {
		name, path, text string
		problems         int
	}{
		{"comment", "", line("// ", maxComment), 0},
		{"wide comment", "", line("// ", maxComment+1), 1},
		{"two wide comments", "", line("// ", maxComment+1) + "\n" + line("// ", maxComment+1), 2},
		{"block", "", "/*\n" + line("", maxComment) + "\n*/", 0},
		{"wide block", "", "/*\n" + line("", maxComment+1) + "\n*/", 1},
		{"indented comment", "", "func f() {\n" + line("\t// ", maxComment) + "\n}", 0},
		{"wide indented comment", "", "func f() {\n" + line("\t// ", maxComment+1) + "\n}", 1},
		{"wide comment behind code", "", line("var a int // ", maxCode+1), 1},
		{"comment behind code", "", line("var a int // ", maxCode), 0},
		{"code", "", "func f() {\n" + line("\t", maxCode) + "\n}", 0},
		{"wide code", "", "func f() {\n" + line("\t", maxCode+1) + "\n}", 1},
		{"code behind a tab stop", "", "func f() {\n" + line("\tgoto \t", maxCode) + "\n}", 0},
		{"wide code behind a tab stop", "", "func f() {\n" + line("\tgoto \t", maxCode+1) + "\n}", 1},
		{"letters of two bytes", "", "// " + strings.Repeat("é", maxComment-3), 0},
		{"directive", "", line("//go:generate ", maxCode+1), 0},
		{"marker", "", line("// +kubebuilder:", maxCode+1), 0},
		{"address", "", line("// See https://a.example/", maxCode+1), 0},
		{"raw string", "", raw, 1},
		{"raw string of a test", "a_test.go", raw, 0},
	} {
		if c.path == "" {
			c.path = "a.go"
		}
		if problems := wide(newFile(t, c.path, "package a\n\n"+c.text+"\n")); len(problems) != c.problems {
			t.Errorf("%s: found %q, want %d problems", c.name, problems, c.problems)
		}
	}
}
