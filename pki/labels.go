// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Names and values of labels are Kubernetes'.
var (
	labelName  = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
)

// ownLabels end the names of labels that the program makes of what certificates and sites say.
const ownLabels = "weir.dev"

// checkLabels checks what the charter says of sites.
func (c *Charter) checkLabels() error {
	for _, site := range slices.Sorted(maps.Keys(c.Labels)) {
		if !labelForm.MatchString(site) {
			return fmt.Errorf("check charter: %w: labels are of site %q: use a DNS label", ErrInvalid, site)
		}
		for _, name := range slices.Sorted(maps.Keys(c.Labels[site])) {
			if err := CheckLabel(name, c.Labels[site][name]); err != nil {
				return fmt.Errorf("check charter: site %s: %w", site, err)
			}
		}
	}
	return nil
}

// CheckLabel checks a label that a charter may say of a site; without a value the site is not to
// have it. ErrInvalid.
func CheckLabel(name, value string) error {
	domain, _, _ := strings.Cut(name, "/")
	switch {
	case strings.HasSuffix(domain, ownLabels):
		return fmt.Errorf("%w: label %s: certificates and the sites themselves say that: choose another name", ErrInvalid, name)
	case !labelName.MatchString(name) || value != "" && !labelValue.MatchString(value):
		return fmt.Errorf("%w: label %s=%s: write one as Kubernetes has them, such as jurisdiction=nl", ErrInvalid, name, value)
	}
	return nil
}

// Counting returns the labels of a site that count: what the charter says of it, and of what it
// says of itself those of which the charter says nothing for any site. It does not change own.
func (c *Charter) Counting(site string, own map[string]string) map[string]string {
	if len(c.Labels) == 0 {
		return own
	}
	out := maps.Clone(own)
	for _, said := range c.Labels {
		for name := range said {
			delete(out, name)
		}
	}
	if out == nil {
		out = map[string]string{}
	}
	for name, value := range c.Labels[site] {
		if value != "" {
			out[name] = value
		}
	}
	return out
}

// Say has the charter say a label of a site.
func (c *Charter) Say(site, name, value string) {
	next := maps.Clone(c.Labels)
	if next == nil {
		next = map[string]map[string]string{}
	}
	of := maps.Clone(next[site])
	if of == nil {
		of = map[string]string{}
	}
	of[name], next[site] = value, of
	c.Labels = next
}

// Says reports whether the charter says a label of any site.
func (c *Charter) Says(name string) bool {
	for _, said := range c.Labels {
		if _, ok := said[name]; ok {
			return true
		}
	}
	return false
}

// Unsay has the charter say nothing of a label of a site any more. It reports whether it did.
func (c *Charter) Unsay(site, name string) bool {
	if _, said := c.Labels[site][name]; !said {
		return false
	}
	next, of := maps.Clone(c.Labels), maps.Clone(c.Labels[site])
	delete(of, name)
	if next[site] = of; len(of) == 0 {
		delete(next, site)
	}
	c.Labels = next
	return true
}

// Labels returns the labels of a site that count by the charter in force; without one all do.
func (c *Credentials) Labels(site string, own map[string]string) map[string]string {
	is := c.charter.Load()
	if is == nil {
		return own
	}
	return is.Counting(site, own)
}
