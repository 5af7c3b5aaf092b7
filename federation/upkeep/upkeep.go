// SPDX-License-Identifier: Apache-2.0

// Package upkeep says what a volume's owner wants of the work that goes on behind it: how many
// files it may hold, how often copies are read again, and how fast and when live blocks move into
// packs. The zero value of each asks for the usual.
//
// # Rules
//
//   - upkeep-1: A volume takes no more files than its owner lets it.
//   - upkeep-2: Blocks move into packs no faster than the owner wants, and in the hours that he
//     gave.
//   - upkeep-3: What a gateway found in its copy is told until it was read again, also when another
//     pass begins and when the gateway restarts.
package upkeep

import (
	"fmt"
	"regexp"
	"time"

	"github.com/weir-storage/weir/federation/quantity"
)

// Quota is how much a volume may hold, besides its size.
type Quota struct {
	// Files is how many inodes, with the root; 0: MaxFiles.
	Files int64 `json:"files,omitempty"`
}

// MaxFiles is the most inodes that a volume may hold.
const MaxFiles = 1 << 32

// Inodes returns how many inodes the volume may hold, the root included.
func (q Quota) Inodes() uint64 {
	if q.Files <= 0 {
		return MaxFiles
	}
	return uint64(q.Files)
}

// Problems returns what is wrong with q: field, value and what to do.
func (q Quota) Problems() (out [][3]string) {
	if q.Files < 0 || q.Files > MaxFiles {
		out = append(out, [3]string{"files", fmt.Sprint(q.Files), fmt.Sprintf("not from 1 to %d: write how many files the volume may "+
			"hold, or leave it out for no limit of its own", int64(MaxFiles))})
	}
	return out
}

// Scrub is how a gateway reads again what it has of a volume.
type Scrub struct {
	// Every is how often each segment is read; 0: DefaultEvery.
	Every quantity.Duration `json:"every,omitempty"`
	// Rate is the most bytes a second that are read; 0: DefaultRate.
	Rate quantity.Bytes `json:"rate,omitempty"`
}

// Bounds and defaults of Scrub and Compaction.
const (
	MinEvery     = quantity.Duration(time.Hour)
	MaxEvery     = quantity.Duration(366 * 24 * time.Hour)
	DefaultEvery = quantity.Duration(7 * 24 * time.Hour)
	// DefaultRate reads 12 TB in DefaultEvery.
	DefaultRate = quantity.Bytes(20 << 20)
	MinRate     = quantity.Bytes(1 << 20)
	MaxRate     = quantity.Bytes(16 << 30)
)

// Period returns how often each segment is read.
func (s Scrub) Period() time.Duration {
	if s.Every == 0 {
		return time.Duration(DefaultEvery)
	}
	return time.Duration(s.Every)
}

// Pace returns how long reading so many bytes takes at least.
func (s Scrub) Pace(bytes int64) time.Duration {
	rate := s.Rate
	if rate == 0 {
		rate = DefaultRate
	}
	return pace(bytes, rate)
}

// pace returns how long bytes take at a rate above 0. No amount of bytes overflows it.
func pace(bytes int64, rate quantity.Bytes) time.Duration {
	return time.Duration(float64(bytes) / float64(rate) * float64(time.Second))
}

// Problems returns what is wrong with s: field, value and what to do.
func (s Scrub) Problems() (out [][3]string) {
	if e := s.Every; e != 0 && (e < MinEvery || e > MaxEvery) {
		out = append(out, [3]string{"every", fmt.Sprint(e),
			fmt.Sprintf("not from %v to %v: write a time span such as 168h", MinEvery, MaxEvery)})
	}
	return append(out, rateProblems(s.Rate, "20Mi")...)
}

func rateProblems(rate quantity.Bytes, example string) [][3]string {
	if rate == 0 || rate >= MinRate && rate <= MaxRate {
		return nil
	}
	return [][3]string{{"rate", fmt.Sprint(rate),
		fmt.Sprintf("not from %v to %v: write bytes a second, such as %s", MinRate, MaxRate, example)}}
}

// Compaction is how the home moves live blocks of old segments into packs.
type Compaction struct {
	// Rate is the most bytes a second that are written; 0: no limit.
	Rate quantity.Bytes `json:"rate,omitempty"`
	// Hours are those of the day, in UTC, as 22:00-06:00; empty: all day.
	Hours string `json:"hours,omitempty"`
}

// Pace returns how long writing so many bytes takes at least.
func (c Compaction) Pace(bytes int64) time.Duration {
	if c.Rate <= 0 {
		return 0
	}
	return pace(bytes, c.Rate)
}

// May reports whether blocks may move now, which Next said may at due.
func (c Compaction) May(due, now time.Time) bool {
	return c.Open(now) && (c.Rate == 0 || !now.Before(due))
}

// Next returns when blocks may move again after so many bytes, which may have been at due, moved
// since began. What could have moved since the last round, and did not, moves in this one: rounds
// are rare.
func (c Compaction) Next(due, began time.Time, bytes int64, round time.Duration) time.Time {
	if earliest := began.Add(-round); due.Before(earliest) {
		due = earliest
	}
	return due.Add(c.Pace(bytes))
}

// Open reports whether blocks may move now. Hours that cannot be read are all day: Problems
// refuses them, and without packs stores only grow.
func (c Compaction) Open(now time.Time) bool {
	from, until, ok := hours(c.Hours)
	if !ok || from == until {
		return true
	}
	now = now.UTC()
	at := now.Hour()*60 + now.Minute()
	if from < until {
		return from <= at && at < until
	}
	return at >= from || at < until
}

var hoursForm = regexp.MustCompile(`^([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])$`)

// hours returns the minutes of the day at which hours begin and end.
func hours(s string) (from, until int, ok bool) {
	m := hoursForm.FindStringSubmatch(s)
	if m == nil {
		return 0, 0, false
	}
	var n [4]int
	for i := range n {
		n[i] = int(m[i+1][0]-'0')*10 + int(m[i+1][1]-'0')
	}
	return n[0]*60 + n[1], n[2]*60 + n[3], true
}

// Problems returns what is wrong with c: field, value and what to do.
func (c Compaction) Problems() (out [][3]string) {
	out = rateProblems(c.Rate, "50Mi")
	switch from, until, ok := hours(c.Hours); {
	case c.Hours == "":
	case !ok:
		out = append(out, [3]string{"hours", c.Hours, "not hours of the day: write them in UTC, such as 22:00-06:00"})
	case from == until:
		out = append(out, [3]string{"hours", c.Hours, "begins and ends at the same time: leave it out for all day"})
	}
	return out
}

// Scrubbed is how the newest scrub of one copy is.
type Scrubbed struct {
	// Ended is when all had been read, the last time; zero: not yet, since anybody knows.
	Ended time.Time `json:"ended,omitzero"`
	// Segments were read then, and Bytes.
	Segments int            `json:"segments,omitempty"`
	Bytes    quantity.Bytes `json:"bytes,omitempty"`
	// Healed were damaged, since anybody counts.
	Healed int `json:"healed,omitempty"`
	// Damaged are segments that no copy in reach has whole, and Findings are what the newest check
	// of the metadata found.
	Damaged  int `json:"damaged,omitempty"`
	Findings int `json:"findings,omitempty"`
}

// Bad reports whether something is damaged that was not healed.
func (s *Scrubbed) Bad() bool { return s != nil && s.Damaged+s.Findings > 0 }
