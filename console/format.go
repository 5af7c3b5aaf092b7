// SPDX-License-Identifier: Apache-2.0

package console

import (
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// functions are what pages call.
func functions() template.FuncMap {
	return template.FuncMap{
		"day":   func(t any) string { return day(t, "2006-01-02") },
		"time":  func(t any) string { return day(t, "2006-01-02 15:04") },
		"short": short,
		"bytes": bytesText,
		"days":  daysText,
		"brief": brief,
		"tone":  tone,
		"kind":  kindOf,
		"kinds": func() []kind { return allKinds },
		"at": func(path, prefix string) bool {
			return path == prefix || prefix != "/" && strings.HasPrefix(path, prefix)
		},
		"list": func(all ...string) []string { return all },
	}
}

// day shows a metav1.Time, or what points to one.
func day(v any, form string) string {
	var t metav1.Time
	switch x := v.(type) {
	case metav1.Time:
		t = x
	case *metav1.Time:
		if x != nil {
			t = *x
		}
	}
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format(form)
}

// short is enough of an ID for people.
func short(id string) string {
	out, _, _ := strings.Cut(id, "-")
	return out
}

// longest is how much of a text a list has, in letters. Its own page has all of it.
const longest = 120

// brief is enough of a text for a list.
func brief(s string) string {
	if r := []rune(s); len(r) > longest {
		return string(r[:longest-1]) + "…"
	}
	return s
}

// bytesText is an amount as people read it.
func bytesText(v any) string {
	var n int64
	switch x := v.(type) {
	case *resource.Quantity:
		if x == nil {
			return "–"
		}
		n = x.Value()
	case resource.Quantity:
		n = x.Value()
	case int64:
		n = x
	}
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0") + " " + units[i]
}

// daysText is a span as people read it.
func daysText(d metav1.Duration) string {
	switch {
	case d.Duration == 24*time.Hour:
		return "1 day"
	case d.Duration%(24*time.Hour) == 0:
		return fmt.Sprintf("%d days", d.Duration/(24*time.Hour))
	}
	return d.Duration.String()
}

// tone is the class of a word for how good that is. The word itself says it, too.
func tone(word string) string {
	switch word {
	case "Active", "Ready", "True", "Whole", "Home", "Member", "Follower", "Agreed":
		return "good"
	case "Requested", "Ending", "Drained", "Degraded", "Filling", "Joining", "Updating", "Exhausted", "Creating":
		return "mind"
	case "Breached", "False", "Failing", "Lost", "Refused", "HomeLost", "Disagree", "WritesWait", "NoGateway", "Unplaceable":
		return "bad"
	}
	return "plain"
}

// ready is the condition of that name.
func ready(list []metav1.Condition) metav1.Condition {
	if c := meta.FindStatusCondition(list, v1alpha1.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// paged is a part of a list.
type paged[T any] struct {
	Items       []T
	All, From   int
	Query       url.Values
	Page, Pages int
	Forbidden   string
	key         string // of the query: which part it is
}

// perPage is how much of a list a page has.
const perPage = 50

// page cuts a page's list.
func page[T any](all []T, q url.Values, forbidden string) paged[T] {
	return pageBy("page", all, q, forbidden)
}

// pageBy cuts one of several lists, whose part is in the query by a name of its own.
func pageBy[T any](key string, all []T, q url.Values, forbidden string) paged[T] {
	n, err := strconv.Atoi(q.Get(key))
	pages := max((len(all)+perPage-1)/perPage, 1)
	if err != nil || n < 1 {
		n = 1
	}
	n = min(n, pages)
	from := (n - 1) * perPage
	return paged[T]{Items: all[from:min(from+perPage, len(all))], All: len(all), From: from + 1, Query: q, Page: n, Pages: pages,
		Forbidden: forbidden, key: key}
}

// Link is the address of another part of the same list.
func (p paged[T]) Link(n int) string {
	q := url.Values{}
	for k, v := range p.Query {
		q[k] = slices.Clone(v)
	}
	q.Set(p.key, strconv.Itoa(n))
	return "?" + q.Encode()
}

// Before and After are the neighbours; 0: there is none.
func (p paged[T]) Before() int { return p.Page - 1 }

// After is the next one.
func (p paged[T]) After() int {
	if p.Page < p.Pages {
		return p.Page + 1
	}
	return 0
}

// matches reports whether a text is in one of some others.
func matches(q string, in ...string) bool {
	q = strings.ToLower(strings.TrimSpace(q))
	return q == "" || slices.ContainsFunc(in, func(s string) bool { return strings.Contains(strings.ToLower(s), q) })
}
