// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"regexp"
	"strings"
	"unicode"
)

// comment takes a comment apart: what it says to people, and its markers.
func comment(g *ast.CommentGroup) (doc string, markers []marker, err error) {
	if g == nil {
		return "", nil, nil
	}
	var text []string
	var problems []error
	for _, c := range g.List {
		line := strings.TrimPrefix(c.Text, "//")
		if after, ok := strings.CutPrefix(strings.TrimSpace(line), "+"); ok {
			m, err := parseMarker(after)
			markers, problems = append(markers, m), append(problems, err)
			continue
		}
		text = append(text, strings.TrimPrefix(line, " "))
	}
	return strings.TrimSpace(strings.Join(text, "\n")), markers, errors.Join(problems...)
}

func in(where string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", where, err)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

var (
	// endOfSentence is a full stop before something that begins a sentence.
	endOfSentence = regexp.MustCompile("\\. (?:[A-Z`0-9])")
	defaultForm   = regexp.MustCompile(`^Default:? (.+)$`)
	changeForm    = regexp.MustCompile(`^(Live|NewDataOnly|Immutable)(?:$|[:;,] (.+)$)`)
	polarityForm  = regexp.MustCompile(`^Polarity: (.+)$`)
)

// split cuts a text into sentences, without their full stops.
func split(text string) []string {
	var out []string
	for text != "" {
		at := endOfSentence.FindStringIndex(text)
		if at == nil {
			return append(out, strings.TrimSuffix(text, "."))
		}
		out = append(out, text[:at[0]])
		text = text[at[0]+2:]
	}
	return out
}

// sentences takes those on default and change out of a field's comment. What a change does besides
// stays.
func sentences(text string) (doc, initial, change string) {
	var kept []string
	for _, s := range split(text) {
		if m := defaultForm.FindStringSubmatch(s); m != nil {
			initial = m[1]
		} else if m := changeForm.FindStringSubmatch(s); m != nil {
			change = m[1]
			if m[2] != "" {
				kept = append(kept, capital(m[2]))
			}
		} else {
			kept = append(kept, s)
		}
	}
	return strings.Join(kept, ". "), initial, change
}

// polarity takes the sentence on it out of a condition's comment.
func polarity(text string) (doc, polarity string) {
	var kept []string
	for _, s := range split(text) {
		if m := polarityForm.FindStringSubmatch(s); m != nil {
			polarity = m[1]
		} else {
			kept = append(kept, s)
		}
	}
	return strings.Join(kept, ". "), polarity
}

// meaning takes the name from the beginning of a constant's comment; when is what stands between it
// and the first colon.
func meaning(c constant) (when, doc string) {
	rest := strings.TrimPrefix(c.doc, c.name)
	if rest == c.doc {
		return "", strings.TrimSuffix(c.doc, ".")
	}
	if after, ok := strings.CutPrefix(rest, ":"); ok {
		return "", strings.TrimSpace(strings.TrimSuffix(after, "."))
	}
	if after, ok := strings.CutPrefix(rest, ", "); ok {
		if w, d, ok := strings.Cut(after, ": "); ok {
			return w, strings.TrimSuffix(d, ".")
		}
	}
	return "", strings.TrimSpace(strings.TrimSuffix(rest, "."))
}

func capital(s string) string {
	r := []rune(s)
	if len(r) > 0 {
		r[0] = unicode.ToUpper(r[0])
	}
	return string(r)
}
