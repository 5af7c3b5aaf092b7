// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/weir-storage/weir/federation"
)

// Rule is why a site was refused.
type Rule string

// Rules. All but RuleNotWanted are hard: no choice breaks them.
const (
	RuleForbidden Rule = "sites.forbidden"
	RuleSelector  Rule = "sites.selector"
	RuleLends     Rule = "lends"
	RulePool      Rule = "cache.pool"
	RuleSpread    Rule = "spread"
	RuleCapacity  Rule = "capacity"
	RuleLost      Rule = "lost"
	RuleNoKey     Rule = "key"
	RuleGranted   Rule = "grants"
	RuleUnknown   Rule = "unknown"
	RuleEnding    Rule = "ending"
	RuleQuota     Rule = "quota"
	// RuleNotWanted: sites that come before it have all the copies.
	RuleNotWanted Rule = "copies"
)

// Refusal is why a site gets no copy.
type Refusal struct {
	Site string
	Rule Rule
	Why  string
}

func (r Refusal) String() string { return fmt.Sprintf("%s: %s", r.Site, r.Why) }

// Unplaceable says why no choice of sites satisfies a request.
type Unplaceable struct {
	// Problem says what is wrong and what to do.
	Problem string
	Refused []Refusal
}

// shownRefusals bounds a message: a condition is for people.
const shownRefusals = 24

func (e *Unplaceable) Error() string {
	var b strings.Builder
	b.WriteString(e.Problem)
	for i, r := range e.Refused {
		if i == shownRefusals {
			fmt.Fprintf(&b, "; and %d more", len(e.Refused)-i)
			break
		}
		b.WriteString("; ")
		b.WriteString(r.String())
	}
	return b.String()
}

// remedies is what may help, by the rules that refused sites.
func (p *placer) remedies() string {
	s := "register another site, borrow room for objects (StorageRequest), or lower spec.replication.copies"
	rules := map[Rule]string{}
	for _, r := range p.refused {
		rules[r.Rule] = r.Site
	}
	for _, r := range []struct {
		rule   Rule
		remedy string
	}{
		{RuleSpread, "spread over Site"}, {RuleForbidden, "forbid fewer sites"}, {RuleSelector, "select more sites"},
		{RulePool, "give a CachePool there these labels (the chart's gateway.pool.labels), or select others"},
		{RuleLends, "ask another organization to lend (StorageRequest for an offer of kind Copy, or the chart's gateway.lends there)"},
		{RuleGranted, "let copies there have the key"},
		{RuleCapacity, "give a site more capacity"}, {RuleNoKey, "start a gateway at a site without one"},
		{RuleQuota, "have an administrator raise spec.amount of the PlacementQuota, or delete volumes that it counts"},
	} {
		if rules[r.rule] != "" && !(r.rule == RuleSpread && p.Spec.Replication.Spread == federation.SpreadSite) {
			s += ", or " + r.remedy
		}
	}
	return s
}
