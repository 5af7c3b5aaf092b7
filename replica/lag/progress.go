// SPDX-License-Identifier: Apache-2.0

package lag

import (
	"math"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/replica/protocol"
)

// A copy catches up, and its progress is shown, once it has trailed for catchUpAfter, until it has
// what is committed.
const catchUpAfter = 2 * time.Second

// rateMemory is the age at which what was copied counts for little more than a third in a rate.
const rateMemory = 20 * time.Second

// A rate is per second, of the recent past. While there is little past, it is the mean of all.
type rate struct{ amount, seconds float64 }

func (r *rate) add(amount int64, d time.Duration) {
	keep := math.Exp(-d.Seconds() / rateMemory.Seconds())
	r.amount = r.amount*keep + float64(amount)
	r.seconds = r.seconds*keep + d.Seconds()
}

func (r *rate) perSecond() float64 {
	if r.seconds == 0 {
		return 0
	}
	return r.amount / r.seconds
}

// catchUp measures how a copy that lacks much gets nearer to the end of the home's log.
type catchUp struct {
	copied         int64 // bytes since it began
	match, end     protocol.Position
	absent         uint64        // of the log's past, bytes
	at             time.Duration // when these two were so
	arrives, grows rate          // what the copy gets, and what is appended meanwhile
}

func (c *catchUp) look(p protocol.PeerStatus, end protocol.Position, now time.Duration, distance func(from, to protocol.Position) int64) {
	if c.at != 0 {
		got := distance(c.match, p.Match) + int64(c.absent-min(c.absent, p.Lacks))
		c.copied += got
		c.arrives.add(got, now-c.at)
		c.grows.add(distance(c.end, end), now-c.at)
	}
	c.match, c.absent, c.end, c.at = p.Match, p.Lacks, end, now
}

// progress describes c while the copy lacks lacks bytes.
func (c *catchUp) progress(lacks int64) federation.Progress {
	p := federation.Progress{Copied: c.copied, Total: c.copied + lacks, BytesPerSecond: int64(c.arrives.perSecond())}
	if nearer := c.arrives.perSecond() - c.grows.perSecond(); nearer > 1 {
		p.SecondsLeft = math.Ceil(float64(lacks) / nearer)
	}
	return p
}

// Follow measures the copies that catch up. It is called at every tick of a home. distance returns
// how many bytes of the log are between two positions.
func (l *Meter) Follow(peers []protocol.PeerStatus, commit, end protocol.Position, now time.Duration,
	distance func(from, to protocol.Position) int64) {
	for _, p := range peers {
		c := l.catching[p.Member.Gateway]
		switch {
		case !p.Match.Less(commit) && p.Lacks == 0, c != nil && p.Match.Less(c.match): // it has all, or it begins anew
			delete(l.catching, p.Member.Gateway)
		case !p.Joined:
			if c != nil { // it goes on where it was when it answers again
				c.at = 0
			}
		case c != nil:
			c.look(p, end, now, distance)
		case p.Lacks > 0, l.Behind(p.Match, now) >= catchUpAfter:
			c = new(catchUp)
			c.look(p, end, now, distance)
			if l.catching == nil {
				l.catching = map[string]*catchUp{}
			}
			l.catching[p.Member.Gateway] = c
		}
	}
}

// CatchesUp reports whether Follow has something to measure: a copy that caught up may have ended.
func (l *Meter) CatchesUp() bool { return len(l.catching) > 0 }

// Forget forgets which copies catch up: this gateway is not the home.
func (l *Meter) Forget() { l.catching = nil }

// Progress describes how a gateway's copy, which lacks lacks bytes, catches up; zero: it does not.
func (l *Meter) Progress(gateway string, lacks int64) federation.Progress {
	if c := l.catching[gateway]; c != nil {
		return c.progress(lacks)
	}
	return federation.Progress{}
}

// Replay is the replay of a log. Nobody changes it.
type Replay struct {
	Began time.Time
	Total int64 // bytes of the log, when it began
}

// Progress describes a replay of which lacks bytes are left.
func (r Replay) Progress(lacks int64, now time.Time) federation.Progress {
	p := federation.Progress{Copied: r.Total - lacks, Total: r.Total}
	if took := now.Sub(r.Began).Seconds(); took > 0 && p.Copied > 0 {
		rate := float64(p.Copied) / took
		p.BytesPerSecond, p.SecondsLeft = int64(rate), float64(lacks)/rate
	}
	return p
}
