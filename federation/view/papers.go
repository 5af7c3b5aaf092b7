// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"slices"
	"strings"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
)

// papers are those of the exchange that are shown here, by the first two words of their names, and
// then by name. View.mu guards it.
type papers map[string]map[string]paper.At

// group is the first two words of a paper's name.
func group(name string) string {
	form, rest, _ := strings.Cut(name, "/")
	who, _, _ := strings.Cut(rest, "/")
	return form + "/" + who
}

// names calls f with every paper.
func (ps papers) names(f func(federation.Kind, string)) {
	for _, of := range ps {
		for name := range of {
			f(federation.KindPaper, name)
		}
	}
}

// apply takes in a paper, and returns what it was before.
func (ps papers) apply(e federation.Event) *paper.Paper {
	g := group(e.Name)
	var was *paper.Paper
	if old, ok := ps[g][e.Name]; ok {
		was = &old.Paper
	}
	switch {
	case e.Err != nil: // view-2
	case e.Paper == nil:
		if delete(ps[g], e.Name); len(ps[g]) == 0 {
			delete(ps, g)
		}
	default:
		if ps[g] == nil {
			ps[g] = map[string]paper.At{}
		}
		ps[g][e.Name] = paper.At{Paper: *e.Paper, Revision: int64(e.Revision)}
	}
	return was
}

// Paper returns a paper of the exchange, without its signature; false: it is not there, or not
// shown here.
func (v *View) Paper(name string) (paper.At, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	p, ok := v.papers[group(name)][name]
	return p, ok
}

// Papers returns those whose names begin with a prefix, by name.
func (v *View) Papers(prefix string) (out []paper.At) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var names []string
	look := func(of map[string]paper.At) {
		for name := range of {
			if strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
	}
	if strings.Count(prefix, "/") >= 2 { // one group has them all
		look(v.papers[group(prefix)])
	} else {
		for g, of := range v.papers {
			if strings.HasPrefix(g, prefix) {
				look(of)
			}
		}
	}
	slices.Sort(names)
	for _, name := range names {
		out = append(out, v.papers[group(name)][name])
	}
	return out
}

// Book reads papers from the view, and writes them by b. What was read may be old: then a change is
// a conflict, and who made it decides anew when the view has heard of what is new.
func (v *View) Book(b paper.Book) paper.Book { return book{b, v} }

type book struct {
	paper.Book
	view *View
}

// GetPaper implements paper.Book.
func (b book) GetPaper(_ context.Context, name string) (paper.At, error) {
	p, ok := b.view.Paper(name)
	if !ok {
		return p, &federation.Error{Op: "get", Kind: string(federation.KindPaper), Name: name, Err: federation.ErrNotFound}
	}
	return p, nil
}

// ListPapers implements paper.Book.
func (b book) ListPapers(_ context.Context, prefix string) ([]paper.At, error) {
	return b.view.Papers(prefix), nil
}
