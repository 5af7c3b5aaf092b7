// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation/quantity"
)

// TestNamesOfPeriods: each period has one name, in UTC, by which its schedule is found again.
func TestNamesOfPeriods(t *testing.T) {
	at := time.Date(2026, 11, 29, 15, 59, 59, 0, time.FixedZone("", -3600)) // a Sunday
	for e, want := range map[Every]string{
		QuarterHourly: "quarterhourly-2026-11-29T16-45Z", Hourly: "hourly-2026-11-29T16-00Z", Daily: "daily-2026-11-29T00-00Z",
		Weekly: "weekly-2026-11-23T00-00Z", Monthly: "monthly-2026-11-01T00-00Z",
	} {
		if got := e.Name(at); got != want {
			t.Errorf("%s: %s, want %s", e, got, want)
		}
		if got, ok := Parse(want); !ok || got != e {
			t.Errorf("%s is of %s (%t)", want, got, ok)
		}
		if CheckName(want) == "" {
			t.Errorf("somebody may ask for %s", want)
		}
	}
	monday := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	if got := Weekly.Name(monday); got != "weekly-2026-11-30T00-00Z" {
		t.Errorf("the week of a Monday begins with %s", got)
	}
	for _, name := range []string{"hourly-2026-11-29T16-01Z", "hourly-2026-13-29T16-00Z", "hourly-", "hourly-x", "daily", "a", "",
		"weekly-2026-11-24T00-00Z", "hourly-2026-11-29T16-00Z-2"} {
		if e, ok := Parse(name); ok {
			t.Errorf("%q is of %s", name, e)
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, wrong := range map[string]bool{"a": false, "before-upgrade_2.1": false, "hourly": false, "hourly-one": false,
		strings.Repeat("a", MaxName): false, strings.Repeat("a", MaxName+1): true, "": true, "@now": true, ".x": true, "a/b": true,
		"a b": true, "hourly-1": true, "ü": true, "..": true} {
		if got := CheckName(name); (got != "") != wrong {
			t.Errorf("%q: %q", name, got)
		}
	}
}

func TestProblems(t *testing.T) {
	good := Policy{Schedule: []Schedule{{Hourly, 24}, {Daily, 31}}, Window: MaxWindow, Directory: DirectoryNone}
	if p := good.Problems(); len(p) > 0 || len(Policy{}.Problems()) > 0 {
		t.Error(p)
	}
	bad := Policy{Schedule: []Schedule{{"Yearly", 1}, {Daily, 0}, {Daily, MaxKept}}, Window: quantity.Duration(time.Millisecond),
		Directory: "Shown"}
	var fields []string
	for _, p := range bad.Problems() {
		fields = append(fields, p[0])
	}
	want := []string{"schedule[0].every", "schedule[1].keep", "schedule[2].every", "schedule", "window", "directory"}
	if !reflect.DeepEqual(fields, want) {
		t.Errorf("%q are wrong, want %q", fields, want)
	}
}

func TestWrong(t *testing.T) {
	many := make([]Wish, MaxWishes+1)
	for i := range many {
		many[i] = Wish{Name: fmt.Sprint("s", i), UID: "u"}
	}
	scheduled := Hourly.Name(time.Unix(0, 0))
	for _, tt := range []struct {
		all  []Wish
		says string
	}{
		{nil, ""},
		{many[:MaxWishes], ""},
		{many, "at most 128"},
		{[]Wish{{Name: "a", UID: "u"}, {Name: "a", UID: "v"}}, "twice"},
		{[]Wish{{Name: "a"}}, "say who asked"},
		{[]Wish{{Name: "a", UID: "u", Drop: true}}, ""},
		{[]Wish{{Name: "a/b", UID: "u"}}, "not a snapshot's name"},
		{[]Wish{{Name: scheduled, UID: "u"}}, "scheduled snapshots"},
		{[]Wish{{Name: scheduled, UID: "u", Drop: true}, {Name: "before-rollback 15:00", UID: "u", Drop: true}}, ""},
		{[]Wish{{Name: "@1", UID: "u", Drop: true}}, "not the name of any snapshot"},
		{[]Wish{{Name: "a/b", UID: "u", Drop: true}}, "not the name of any snapshot"},
	} {
		if got := Wrong(tt.all); tt.says == "" && got != "" || !strings.Contains(got, tt.says) {
			t.Errorf("%v: %q, want %q", tt.all, got, tt.says)
		}
	}
}

// TestPut: a wish that says drop stays until the home has dropped it for the one who asked.
func TestPut(t *testing.T) {
	all := []Wish{{Name: "a", UID: "1", Drop: true}, {Name: "b", UID: "2", Drop: true}, {Name: "c", UID: "3"}}
	seen := &Report{All: []Snapshot{{Name: "a", UID: "1", State: StateDropped}, {Name: "b", UID: "9", State: StateDropped},
		{Name: "c", UID: "3", State: StateDropped}, {Name: "e", State: StateTaken, Time: time.Unix(1, 0)}}}
	got := Put(all, Wish{Name: "d", UID: "4"}, seen)
	if want := []Wish{all[1], all[2], {Name: "d", UID: "4"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := Put(all, Wish{Name: "c", UID: "3", Drop: true}, nil); len(got) != 3 || !got[2].Drop || all[2].Drop {
		t.Errorf("%v, and before %v", got, all)
	}
	if n := seen.Count(); n != 1 {
		t.Errorf("%d are there", n)
	}
}
