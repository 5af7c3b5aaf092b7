// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"strings"
	"testing"
	"time"
)

func source(change ...func(*Source)) *Source {
	s := &Source{Volume: "00000000-0000-4000-8000-000000000001", Snapshot: "one", Snap: 3, Time: time.Unix(1, 0)}
	for _, f := range change {
		f(s)
	}
	return s
}

func TestSources(t *testing.T) {
	for want, s := range map[string]*Source{
		"":               source(),
		"no UUID":        source(func(s *Source) { s.Volume = "v" }),
		"snapshot \"\"":  source(func(s *Source) { s.Snapshot = "" }),
		"snap or time ":  source(func(s *Source) { s.Snap = 0 }),
		"time is missin": source(func(s *Source) { s.Time = time.Time{} }),
	} {
		if got := s.Wrong(); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
	if (*Source)(nil).Wrong() != "" || (*Source)(nil).Unfinished() {
		t.Error("a volume that is made of nothing is not well")
	}
}

// TestSourceStays: what a volume is made of is decided once, and once it has all, it has.
func TestSourceStays(t *testing.T) {
	done := source(func(s *Source) { s.Done = true })
	for _, tt := range []struct {
		name     string
		old, now *Source
		refused  bool
	}{
		{"none", nil, nil, false},
		{"the same, from another zone", source(), source(func(s *Source) { s.Time = s.Time.UTC() }), false},
		{"done", source(), done, false},
		{"not done any more", done, source(), true},
		{"put in", nil, source(), true},
		{"taken out", source(), nil, true},
		{"another", source(), source(func(s *Source) { s.Snap++ }), true},
	} {
		if got := tt.now.Replaces(tt.old); (got != "") != tt.refused {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}
