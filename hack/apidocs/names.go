// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

func (p *pager) conditions() {
	p.line("## Conditions\n\nThey follow the conventions of Kubernetes. A type that is not there is not known.\n")
	p.line("| type | polarity | meaning |\n| --- | --- | --- |")
	for _, c := range p.s.constants {
		if !isCondition(c) {
			continue
		}
		doc, polarity := polarity(c.doc)
		when, doc := meaning(constant{name: c.name, doc: doc})
		p.line("| `%s` | %s | %s |", c.value, prose(polarity), stop(prose(sentence(when, doc))))
	}
	p.line("\nReasons. Where nothing else is said, they are of `Ready`, which is then False.\n")
	p.line("| reason | of, with | meaning |\n| --- | --- | --- |")
	for _, c := range p.s.constants {
		if isReason(c) {
			when, doc := meaning(c)
			p.line("| `%s` | %s | %s |", c.value, prose(when), stop(prose(capital(doc))))
		}
	}
	p.line("")
}

// sentence puts what stood before the colon back: in a table of conditions it belongs to the
// meaning.
func sentence(when, doc string) string {
	if when == "" {
		return capital(doc)
	}
	return capital(when) + ": " + doc
}

// names are constants that belong to nothing else.
func (p *pager) names() {
	p.line("## Names\n\nLabels, annotations, parameters and other names that programs rely on.\n")
	p.line("| name | meaning |\n| --- | --- |")
	for _, c := range p.s.constants {
		if c.of == "" && !isCondition(c) && !isReason(c) {
			_, doc := meaning(c)
			p.line("| `%s` | %s |", c.value, stop(prose(capital(strings.TrimPrefix(doc, "is ")))))
		}
	}
}

// prose is text as it may stand in a cell of a table.
func prose(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// stop ends a sentence.
func stop(s string) string {
	if s == "" || strings.HasSuffix(s, ".") {
		return s
	}
	return s + "."
}

// code is text as it was typed, in a cell of a table. What would end the cell is written in HTML.
func code(s string) string {
	if !strings.Contains(s, "|") {
		return verbatim(s)
	}
	return escaped(s)
}

// verbatim is text as it was typed. What programs may take for a link is written in HTML.
func verbatim(s string) string {
	if !strings.Contains(s, "](") && !strings.Contains(s, "`") {
		return "`" + s + "`"
	}
	return escaped(s)
}

func escaped(s string) string {
	r := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "|", "&#124;",
		"(", "&#40;", "`", "&#96;", "*", "&#42;", "_", "&#95;", "\\", "&#92;", "[", "&#91;")
	return "<code>" + r.Replace(s) + "</code>"
}

// anchor is the target of a heading.
func anchor(heading string) string {
	return strings.ReplaceAll(strings.ToLower(heading), " ", "-")
}
