// SPDX-License-Identifier: Apache-2.0

package view

import (
	"maps"
	"slices"
	"strings"

	"github.com/weir-storage/weir/federation/paper"
)

// papers are those of the exchange, by name. View.mu guards it.
type papers map[string]paper.Paper

// Paper returns the paper of a name; false: none is known.
func (v *View) Paper(name string) (paper.Paper, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	p, ok := v.papers[name]
	return p, ok
}

// Papers returns those whose names begin with a prefix, by name.
func (v *View) Papers(prefix string) (out []paper.Paper) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, name := range slices.Sorted(maps.Keys(v.papers)) {
		if strings.HasPrefix(name, prefix) {
			out = append(out, v.papers[name])
		}
	}
	return out
}

// Agreement returns both sides of an agreement; nil: that side has said nothing.
func (v *View) Agreement(id string) (*paper.Request, *paper.Answer) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.papers[paper.RequestName(id)].Request, v.papers[paper.AnswerName(id)].Answer
}
