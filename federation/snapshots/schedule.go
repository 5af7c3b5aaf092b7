// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"regexp"
	"strings"
	"time"
)

// Every is how often a schedule takes a snapshot. Periods begin at the quarters of the hour, the
// hours, midnight, Monday and the first of the month, all in UTC.
type Every string

// The values of Every.
const (
	QuarterHourly Every = "QuarterHourly"
	Hourly        Every = "Hourly"
	Daily         Every = "Daily"
	Weekly        Every = "Weekly"
	Monthly       Every = "Monthly"
)

var everies = []Every{QuarterHourly, Hourly, Daily, Weekly, Monthly}

// reserved are names that only schedules give, also those of periods that there are not.
var reserved = regexp.MustCompile(`^(quarterhourly|hourly|daily|weekly|monthly)-[0-9]`)

// stamp is the beginning of a period in a snapshot's name, without colons, which some clients do
// not take in names.
const stamp = "2006-01-02T15-04Z"

// prefix is what names of the schedule begin with; empty: there is no such schedule.
func (e Every) prefix() string {
	for _, known := range everies {
		if e == known {
			return strings.ToLower(string(e)) + "-"
		}
	}
	return ""
}

// begin is when the period began that t is in.
func (e Every) begin(t time.Time) time.Time {
	t = t.UTC()
	day := time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
	switch e {
	case QuarterHourly:
		return t.Truncate(15 * time.Minute)
	case Hourly:
		return t.Truncate(time.Hour)
	case Weekly:
		return day.AddDate(0, 0, -(int(day.Weekday())+6)%7)
	case Monthly:
		return day.AddDate(0, 0, 1-day.Day())
	}
	return day
}

// Name is the name of the snapshot of the period that t is in, such as hourly-2026-11-27T15-00Z.
func (e Every) Name(t time.Time) string { return e.prefix() + e.begin(t).Format(stamp) }

// Parse returns which schedule gave a name; false: none did.
func Parse(name string) (Every, bool) {
	for _, e := range everies {
		rest, ok := strings.CutPrefix(name, e.prefix())
		if !ok {
			continue
		}
		t, err := time.Parse(stamp, rest)
		return e, err == nil && e.Name(t) == name
	}
	return "", false
}
