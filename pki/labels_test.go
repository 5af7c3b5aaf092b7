// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/weir-storage/weir/pki"
)

// What the charter says of any site counts at each only as it says.
func TestLabelsOfTheCharter(t *testing.T) {
	c := &pki.Charter{Federation: "surf", Serial: 1}
	own := map[string]string{"jurisdiction": "nl", "tier": "gold"}
	is := func(site string, want map[string]string) {
		t.Helper()
		if got := c.Counting(site, own); !maps.Equal(got, want) {
			t.Errorf("at %s count %v, want %v", site, got, want)
		}
	}
	is("a", own)
	c.Say("a", "jurisdiction", "de")
	before := c.Labels
	c.Say("b", "jurisdiction", "nl")
	if len(before) != 1 {
		t.Error("a charter that was there before is changed")
	}
	is("a", map[string]string{"jurisdiction": "de", "tier": "gold"})
	is("b", own)
	is("c", map[string]string{"tier": "gold"})
	if got := c.Counting("a", nil); !maps.Equal(got, map[string]string{"jurisdiction": "de"}) {
		t.Errorf("of a site that says nothing count %v", got)
	}
	if !c.Unsay("a", "jurisdiction") || c.Unsay("a", "jurisdiction") || c.Unsay("c", "tier") {
		t.Error("what is said no more")
	}
	is("a", map[string]string{"tier": "gold"})
	c.Say("b", "jurisdiction", "") // which is not nothing: nobody has it
	is("b", map[string]string{"tier": "gold"})
	is("c", map[string]string{"tier": "gold"})
	if !c.Says("jurisdiction") || c.Says("tier") {
		t.Error("what it says")
	}
	c.Unsay("b", "jurisdiction")
	is("c", own)

	founding := authority(t, "surf")
	for name, labels := range map[string]map[string]map[string]string{
		"a site that cannot be":  {"A b": {"x": "y"}},
		"a name that cannot be":  {"a": {"no name": "y"}},
		"a value that cannot be": {"a": {"x": "no value"}},
		"an organization":        {"a": {"organization.weir.dev": "X"}},
	} {
		if _, err := founding.SignCharter(pki.Charter{Federation: "surf", Serial: 1, Labels: labels}); !errors.Is(err, pki.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
