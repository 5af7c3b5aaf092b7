// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/volume"
)

var at = time.Date(2026, 11, 27, 15, 40, 0, 0, time.UTC)

func list(names ...string) (out []volume.Snapshot) {
	for i, n := range names {
		out = append(out, volume.Snapshot{Name: n, Snap: uint32(i + 1), Time: at.Add(time.Duration(i) * time.Second)})
	}
	return out
}

func TestPlan(t *testing.T) {
	const now, before, earlier = "hourly-2026-11-27T15-00Z", "hourly-2026-11-27T14-00Z", "hourly-2026-11-27T13-00Z"
	hourly := func(keep int) []snapshots.Schedule {
		return []snapshots.Schedule{{Every: snapshots.Hourly, Keep: keep}}
	}
	wish := func(names string, drop bool) (out []snapshots.Wish) {
		for n := range strings.FieldsSeq(names) {
			out = append(out, snapshots.Wish{Name: n, UID: "u-" + n, Drop: drop})
		}
		return out
	}
	for _, tt := range []struct {
		name       string
		schedule   []snapshots.Schedule
		wishes     []snapshots.Wish
		list       string
		dropped    map[string]string
		held       map[string]string
		take, drop string
	}{
		{name: "nothing is asked for, and nothing is dropped", list: "a " + now + " " + before},
		{name: "what is asked for is taken once", wishes: wish("a b", false), list: "a", take: "b"},
		{name: "what is to be dropped, also if it is not there", wishes: wish("a b", true), list: "a c", drop: "a b"},
		{name: "what was dropped in this reign", wishes: wish("a", true), dropped: map[string]string{"a": "u-a"}},
		{name: "what was dropped for another wish", wishes: wish("a", true), dropped: map[string]string{"a": "u"}, drop: "a"},
		{name: "the period's", schedule: hourly(2), list: before, take: now},
		{name: "the period's is there", schedule: hourly(2), list: before + " " + now},
		{name: "the oldest go", schedule: hourly(1), list: earlier + " a " + before + " " + now, drop: before + " " + earlier},
		{name: "nothing goes before the new one is there", schedule: hourly(2), list: earlier + " " + before, take: now},
		{name: "those of other schedules stay", schedule: hourly(1), list: "daily-2026-11-26T00-00Z daily-2026-11-27T00-00Z " + now},
		{name: "a clock that was ahead", schedule: hourly(1), list: "hourly-2030-01-01T00-00Z", take: now},
		{name: "a clock that was ahead, afterwards", schedule: hourly(1), list: "hourly-2030-01-01T00-00Z " + now,
			drop: "hourly-2030-01-01T00-00Z"},
		{name: "what a wrong clock took is in no real one's place", schedule: hourly(1),
			list: now + " hourly-2027-01-01T00-00Z hourly-2025-01-01T00-00Z", drop: "hourly-2025-01-01T00-00Z hourly-2027-01-01T00-00Z"},
		{name: "a home whose clock is a little ahead took the next one's", schedule: hourly(2), list: before + " " + now},
		{name: "of what volumes are made", schedule: hourly(1), wishes: wish("a b", true),
			list: "a b " + earlier + " " + before + " " + now, held: map[string]string{"a": "v", before: "w"}, drop: "b " + earlier},
		{name: "one that somebody dropped is not taken again", schedule: hourly(1), wishes: wish(now, true),
			dropped: map[string]string{now: "u-" + now}},
	} {
		v := federation.Volume{Snapshots: tt.wishes}
		v.Spec.Snapshots.Schedule = tt.schedule
		got := plan(v, list(strings.Fields(tt.list)...), tt.dropped, tt.held, snapshots.Rolled{}, holds{}, at)
		if strings.Join(got.take, " ") != tt.take || strings.Join(append(got.drop, got.old...), " ") != tt.drop {
			t.Errorf("%s: %+v, want %q to be taken and %q dropped", tt.name, got, tt.take, tt.drop)
		}
	}
}

func TestReport(t *testing.T) {
	wishes := []snapshots.Wish{{Name: "a", UID: "1"}, {Name: "b", UID: "2", Drop: true}, {Name: "c", UID: "3"},
		{Name: "d", UID: "4", Drop: true}, {Name: "e", UID: "5", Drop: true}}
	is := list("a", "x", "b")
	got := report(wishes, is, map[string]string{"d": "4", "e": "0"}, map[string]string{"b": "no", "c": "why", "d": "old"},
		nil, holds{})
	want := []snapshots.Snapshot{
		{Name: "a", UID: "1", State: snapshots.StateTaken, Time: is[0].Time, Snap: 1},
		{Name: "x", State: snapshots.StateTaken, Time: is[1].Time, Snap: 2},
		{Name: "b", UID: "2", State: snapshots.StatePending, Time: is[2].Time, Message: "no", Snap: 3},
		{Name: "c", UID: "3", State: snapshots.StatePending, Message: "why"},
		{Name: "d", UID: "4", State: snapshots.StateDropped},
		{Name: "e", UID: "5", State: snapshots.StatePending},
	}
	if !reflect.DeepEqual(got.All, want) || got.More != 0 || got.Count() != 3 || got.Failing() != "b: no" {
		t.Errorf("%+v, want %+v", got, want)
	}
	got = report(wishes, is, nil, nil, map[string]string{"a": "not dropped", "b": "v"}, holds{})
	if b, _ := got.Of("b"); b.State != snapshots.StatePending || !strings.Contains(b.Message, "volume v is being made of it") ||
		got.All[0].Message != "" {
		t.Errorf("of what a volume is being made, it says %+v", got.All)
	}
}

// TestReportIsBounded: what was asked for is told in any case, and of the others the newest are.
func TestReportIsBounded(t *testing.T) {
	var names []string
	for i := range snapshots.MaxReported + 10 {
		names = append(names, fmt.Sprint("s", i))
	}
	got := report([]snapshots.Wish{{Name: "s0", UID: "1"}}, list(names...), nil, nil, nil, holds{})
	if len(got.All) != snapshots.MaxReported || got.All[0].Name != "s0" || got.All[1].Name != "s11" || got.More != 10 ||
		got.Count() != len(names) {
		t.Errorf("%d are told, from %s and %s on, and %d not", len(got.All), got.All[0].Name, got.All[1].Name, got.More)
	}
}
