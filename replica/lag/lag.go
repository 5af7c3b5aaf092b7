// SPDX-License-Identifier: Apache-2.0

// Package lag measures how far copies trail behind the end of a home's log, in time, and how fast
// those that lack much catch up. It reads no clock.
package lag

import (
	"time"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/replica/protocol"
)

// Meter remembers when the home's log ended where, so that lag can be given as time, and how copies
// catch up. The zero value knows nothing. It is not safe for concurrent use. Times are of one clock
// that never goes back.
type Meter struct {
	samples []sample      // ascending
	filling uint64        // segment that the log ends in; 0 while it has no records
	since   time.Duration // when filling was first seen with records

	catching map[string]*catchUp // by gateway
}

// maxSamples bounds the samples of a Meter.
const maxSamples = 4096

type sample struct {
	end protocol.Position
	at  time.Duration
}

// Sample remembers that the log ends at end now. It is called at every tick.
func (l *Meter) Sample(end protocol.Position, now time.Duration) {
	for n := len(l.samples); n > 0 && end.Less(l.samples[n-1].end); n-- { // the log was cut
		l.samples = l.samples[:n-1]
	}
	if n := len(l.samples); n > 0 && l.samples[n-1].end == end {
		return
	}
	l.samples = append(l.samples, sample{end, now})
	if len(l.samples) <= maxSamples {
		return
	}
	// The older a change is, the less exact its age: samples are a fiftieth of their age apart.
	last := l.samples[len(l.samples)-1]
	thin := append(l.samples[:0:0], l.samples[0])
	for i, s := range l.samples[1 : len(l.samples)-1] {
		if next := l.samples[i+2]; next.at-thin[len(thin)-1].at > (now-next.at)/50 {
			thin = append(thin, s)
		}
	}
	l.samples = append(thin, last)
}

// Behind returns how long a copy that ends at pos has been trailing.
func (l *Meter) Behind(pos protocol.Position, now time.Duration) time.Duration {
	for _, s := range l.samples {
		if pos.Less(s.end) {
			return now - s.at
		}
	}
	return 0
}

// Age returns how long the log has ended in a segment that is not sealed and has records. It must
// be called at every tick.
func (l *Meter) Age(end protocol.Position, now time.Duration) time.Duration {
	switch {
	case end.Off <= segment.HeaderSize:
		l.filling = 0
	case l.filling != end.Seq:
		l.filling, l.since = end.Seq, now
	default:
		return now - l.since
	}
	return 0
}
