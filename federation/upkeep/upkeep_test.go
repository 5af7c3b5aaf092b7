// SPDX-License-Identifier: Apache-2.0

package upkeep

import (
	"math"
	"testing"
	"time"
)

// Hours are in UTC, and may go on into the next day.
func TestHours(t *testing.T) {
	at := func(clock string) time.Time {
		now, err := time.ParseInLocation("15:04", clock, time.FixedZone("east", 2*3600)) // two hours before in UTC
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	for _, tt := range []struct {
		hours, now string
		open       bool
	}{
		{"", "12:00", true},
		{"08:00-10:00", "09:59", false}, {"08:00-10:00", "10:00", true}, {"08:00-10:00", "11:59", true}, {"08:00-10:00", "12:00", false},
		{"22:00-06:00", "23:59", false}, {"22:00-06:00", "00:00", true}, {"22:00-06:00", "07:59", true}, {"22:00-06:00", "08:00", false},
		{"22:15-22:45", "00:14", false}, {"22:15-22:45", "00:15", true}, {"22:15-22:45", "00:45", false},
		{"nonsense", "12:00", true}, {"06:00-06:00", "12:00", true},
	} {
		if c := (Compaction{Hours: tt.hours}); c.Open(at(tt.now)) != tt.open {
			t.Errorf("%q, at %s in the east: open is %v", tt.hours, tt.now, !tt.open)
		}
	}
}

func TestPace(t *testing.T) {
	if d := (Scrub{}).Pace(20 << 20); d != time.Second {
		t.Errorf("20 MiB take %v", d)
	}
	if d := (Scrub{Rate: 1 << 20}).Pace(20 << 20); d != 20*time.Second {
		t.Errorf("20 MiB at 1 MiB/s take %v", d)
	}
	if d := (Compaction{}).Pace(math.MaxInt64); d != 0 {
		t.Errorf("without a limit it takes %v", d)
	}
	if d := (Compaction{Rate: MaxRate}).Pace(1 << 54); d != 1<<20*time.Second {
		t.Errorf("16 PiB take %v", d)
	}
	if p := (Scrub{}).Period(); p != 168*time.Hour {
		t.Errorf("the usual period is %v", p)
	}
	if n := (Quota{}).Inodes(); n != 1<<32 {
		t.Errorf("without a quota it is %d", n)
	}
}

func TestProblems(t *testing.T) {
	for _, good := range []interface{ Problems() [][3]string }{Quota{}, Quota{Files: 1}, Quota{Files: MaxFiles}, Scrub{}, Compaction{},
		Scrub{Every: MinEvery, Rate: MinRate}, Scrub{Every: MaxEvery, Rate: MaxRate}, Compaction{Rate: MinRate, Hours: "23:59-00:00"}} {
		if p := good.Problems(); len(p) > 0 {
			t.Errorf("%+v: %v", good, p)
		}
	}
	for _, tt := range []struct {
		field string
		bad   interface{ Problems() [][3]string }
	}{
		{"files", Quota{Files: -1}}, {"files", Quota{Files: MaxFiles + 1}},
		{"every", Scrub{Every: MinEvery - 1}}, {"every", Scrub{Every: MaxEvery + 1}}, {"rate", Scrub{Rate: MinRate - 1}},
		{"rate", Compaction{Rate: MaxRate + 1}}, {"rate", Compaction{Rate: -1}},
		{"hours", Compaction{Hours: "24:00-06:00"}}, {"hours", Compaction{Hours: "22:00-6:00"}}, {"hours", Compaction{Hours: "22:00"}},
		{"hours", Compaction{Hours: "06:00-06:00"}},
	} {
		if p := tt.bad.Problems(); len(p) != 1 || p[0][0] != tt.field {
			t.Errorf("%+v: %v", tt.bad, p)
		}
	}
}
