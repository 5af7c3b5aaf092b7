// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// access is one finished read or write of a register. The register's value counts its writes: one
// writer makes them, one after the other.
type access struct {
	who        string
	value      uint64
	begin, end time.Duration // of one clock
}

// history is what was done to one register.
type history struct{ writes, reads []access }

// check finds what no register could have done. With a single sequential writer, a history is
// linearizable if and only if each read has at least the value of every write and read that ended
// before it began, and at most the value of the writes that began before it ended. The last write
// may have no end. It is not among the writes then, but begun is its value.
func (h history) check(begun uint64) (wrong []string) {
	ended := prefixMax(h.writes)
	seen := prefixMax(h.reads)
	byBegin := slices.Clone(h.writes)
	slices.SortFunc(byBegin, func(a, b access) int { return cmp.Compare(a.begin, b.begin) })
	for _, r := range h.reads {
		if w := ended.before(r.begin); w != nil && r.value < w.value {
			wrong = append(wrong,
				fmt.Sprintf("%s read %d at %v..%v after %s had written %d at %v", r.who, r.value, r.begin, r.end, w.who, w.value, w.end))
		}
		if e := seen.before(r.begin); e != nil && r.value < e.value {
			wrong = append(wrong,
				fmt.Sprintf("%s read %d at %v..%v after %s had read %d at %v", r.who, r.value, r.begin, r.end, e.who, e.value, e.end))
		}
		i, _ := slices.BinarySearchFunc(byBegin, r.end, func(w access, at time.Duration) int { return cmp.Compare(w.begin, at) })
		newest := uint64(0)
		if i > 0 {
			newest = byBegin[i-1].value
		}
		if i == len(byBegin) {
			newest = max(newest, begun)
		}
		if r.value > newest {
			wrong = append(wrong,
				fmt.Sprintf("%s read %d at %v..%v, when %d was the last that had been begun", r.who, r.value, r.begin, r.end, newest))
		}
	}
	return wrong
}

// maxima sorts accesses by their end. Each has the highest value so far.
type maxima struct {
	byEnd   []access
	highest []int // index in byEnd
}

func prefixMax(all []access) maxima {
	m := maxima{byEnd: slices.Clone(all), highest: make([]int, len(all))}
	slices.SortFunc(m.byEnd, func(a, b access) int { return cmp.Compare(a.end, b.end) })
	for i := range m.byEnd {
		m.highest[i] = i
		if i > 0 && m.byEnd[m.highest[i-1]].value > m.byEnd[i].value {
			m.highest[i] = m.highest[i-1]
		}
	}
	return m
}

// before returns the access with the highest value among those that ended before a time, or nil.
func (m maxima) before(at time.Duration) *access {
	i, _ := slices.BinarySearchFunc(m.byEnd, at, func(a access, at time.Duration) int { return cmp.Compare(a.end, at) })
	if i == 0 {
		return nil
	}
	return &m.byEnd[m.highest[i-1]]
}

func TestHistory(t *testing.T) {
	w := func(value uint64, begin, end int) access {
		return access{"w", value, time.Duration(begin), time.Duration(end)}
	}
	writes := []access{w(1, 0, 10), w(2, 20, 30), w(3, 40, 50)}
	for _, c := range []struct {
		name  string
		reads []access
		begun uint64
		want  string // part of what is wrong; "" for nothing
	}{
		{"the value", []access{w(2, 31, 39)}, 3, ""},
		{"old or new during a write", []access{w(1, 21, 29), w(2, 29, 35)}, 3, ""},
		{"before the first write", []access{w(0, 0, 5)}, 3, ""},
		{"a write without an end", []access{w(4, 60, 70)}, 4, ""},
		{"stale after a write", []access{w(1, 31, 39)}, 3, "after w had written 2"},
		{"stale after a newer read", []access{w(2, 21, 22), w(1, 23, 24)}, 3, "after w had read 2"},
		{"from the future", []access{w(3, 31, 39)}, 3, "2 was the last"},
		{"never written", []access{w(9, 60, 70)}, 3, "3 was the last"},
	} {
		got := strings.Join(history{writes: writes, reads: c.reads}.check(c.begun), "; ")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
