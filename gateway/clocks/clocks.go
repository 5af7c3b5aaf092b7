// SPDX-License-Identifier: Apache-2.0

// Package clocks says whether the wall clock of a gateway may decide that something is old enough
// to be dropped for good (ADR 66). A clock that is ahead would else drop all that is kept for a
// time.
//
// Rules:
//
//   - clocks-1. Nothing is dropped for its age by one gateway's clock alone. The clocks of other
//     gateways must agree: more than half of all that answered, this one's counted, and one at
//     least besides it.
//   - clocks-2. What was found holds for a minute, and only while the wall clock and the monotonic
//     one go alike. Who drops uses the time that Agreed returned, and no other.
//   - clocks-3. Where others are registered and none answers, nothing is dropped. A gateway that is
//     the only one of its federation drops nothing for ten minutes after it started, or its wall
//     clock jumped: then somebody, or NTP, had the time to set it right.
//
// A Watch is the only one that writes what it found. It keeps no lock while it asks others.
package clocks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

const (
	// Apart is by how much clocks may differ that agree.
	Apart = time.Minute
	// Alone is how long a gateway that is the only one waits, usually.
	Alone = 10 * time.Minute

	holds   = time.Minute      // how long a verdict holds
	refused = 10 * time.Second // how long one holds that nothing may go
	asks    = 8                // how many others are asked at most
	wait    = 3 * time.Second  // how long for each
)

// How the two clocks are compared. A clock that is set by hand, or by NTP at start, jumps too: what
// follows costs some hundred milliseconds without reads.
const (
	look = 250 * time.Millisecond
	jump = 500 * time.Millisecond // adjusting a clock's rate stays far below this
)

// ErrDisputed is of a clock that may not decide now.
var ErrDisputed = errors.New("nothing is dropped for its age: the clock of this gateway is not confirmed")

// Others are the gateways of a federation. Any goroutine may call its methods.
type Others interface {
	Members() []federation.Member
	Living() (gateways []string, synced bool)
}

// Config is what a Watch needs.
type Config struct {
	Gateway, Site string // this one
	Others        Others
	// Ask returns who asks a gateway.
	Ask    func(gateway string) (forwardpb.ForwardClient, error)
	Now    func() time.Time
	Clock  func() time.Duration // monotonic, counts suspend
	Timers clockwork.Clock
	Logger *slog.Logger
	Jumped func()        // the wall clock did
	Alone  time.Duration // see there; zero: as usual
}

// Watch watches the clocks of one gateway. Any goroutine may call its methods.
type Watch struct {
	cfg    Config
	asking chan struct{} // has a value while nobody asks

	mu      sync.Mutex
	since   time.Duration // by Clock: of the start, or of the last jump
	found   bool          // there is a verdict
	at      time.Duration // by Clock: when it was found
	apart   time.Duration // by how much the clocks of this gateway were apart then
	verdict error
}

// New returns a Watch.
func New(cfg Config) *Watch {
	if cfg.Alone == 0 {
		cfg.Alone = Alone
	}
	w := &Watch{cfg: cfg, asking: make(chan struct{}, 1), since: cfg.Clock()}
	w.asking <- struct{}{}
	return w
}

// apartNow is by how much the wall clock and the monotonic clock are apart.
func (w *Watch) apartNow() time.Duration {
	return time.Duration(w.cfg.Now().UnixNano()) - w.cfg.Clock()
}

// Run compares the wall clock with the clock that promises are measured by, until ctx ends. When
// they part, the machine may have been stopped from outside: its own clock then stands still, and
// the wall clock is set right after it (protocol-4).
func (w *Watch) Run(ctx context.Context) {
	was := w.apartNow()
	t := w.cfg.Timers.NewTicker(look)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.Chan():
		}
		now := w.apartNow()
		if d := now - was; d.Abs() > jump {
			w.cfg.Logger.Warn("the wall clock jumped: perhaps this machine was stopped from outside; promises of before are given up",
				"by", d)
			w.mu.Lock()
			w.since, w.found = w.cfg.Clock(), false
			w.mu.Unlock()
			w.cfg.Jumped()
		}
		was = now
	}
}

// Agreed returns the time, if it may decide what is old enough to go (clocks-1). Else it returns an
// error that is ErrDisputed and says why, or that of ctx. It may ask other gateways, for some
// seconds.
func (w *Watch) Agreed(ctx context.Context) (time.Time, error) {
	select {
	case <-w.asking:
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
	defer func() { w.asking <- struct{}{} }()
	w.mu.Lock()
	now, apart := w.cfg.Clock(), w.apartNow()
	known, err := w.found && (apart-w.apart).Abs() <= jump, w.verdict
	if age := now - w.at; known && (age < refused || err == nil && age < holds) {
		w.mu.Unlock()
		return w.cfg.Now(), err
	}
	since := w.since
	w.mu.Unlock()

	err = w.judge(ctx, now-since)
	if ctx.Err() != nil {
		return time.Time{}, ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if since != w.since || (w.apartNow()-apart).Abs() > jump { // it jumped meanwhile
		w.found = false
		return time.Time{}, fmt.Errorf("%w: it jumped just now", ErrDisputed)
	}
	if err != nil && (!w.found || w.verdict == nil || w.verdict.Error() != err.Error()) {
		w.cfg.Logger.Error("what is old is not dropped: see to the clocks of the gateways, and to NTP", "error", err)
	} else if err == nil && w.found && w.verdict != nil {
		w.cfg.Logger.Info("the clocks of other gateways agree with this one's: what is old is dropped again")
	}
	w.found, w.at, w.apart, w.verdict = true, now, apart, err
	return w.cfg.Now(), err
}

// Disputed returns why nothing was dropped when Agreed was asked last; nil: it might be, or nobody
// asked for a while, as nothing is old.
func (w *Watch) Disputed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cfg.Clock()-w.at > 2*holds {
		return nil
	}
	return w.verdict
}

// answer is what another gateway's clock said.
type answer struct {
	gateway string
	ahead   time.Duration // of this gateway's
	err     error
}

// judge asks other gateways. up is how long this one runs without a jump.
func (w *Watch) judge(ctx context.Context, up time.Duration) error {
	living, synced := w.cfg.Others.Living()
	if !synced {
		return fmt.Errorf("%w: the registry has not told yet which gateways there are", ErrDisputed)
	}
	all := slices.DeleteFunc(w.cfg.Others.Members(), func(m federation.Member) bool { return m.Gateway == w.cfg.Gateway })
	if len(all) == 0 {
		if up < w.cfg.Alone {
			return fmt.Errorf("%w: no other gateway is registered, so it has to run for %s without a jump", ErrDisputed, w.cfg.Alone)
		}
		return nil
	}
	all = slices.DeleteFunc(all, func(m federation.Member) bool { return !slices.Contains(living, m.Gateway) })
	all = spread(all, w.cfg.Site, asks)
	told := make([]answer, len(all))
	var work sync.WaitGroup
	for i, m := range all {
		work.Go(func() { told[i] = w.ask(ctx, m.Gateway) })
	}
	work.Wait()
	return weigh(told)
}

// spread returns n of all gateways, or fewer: one of each site, then another of each, and so on.
// The own site comes last each time. Gateways of one site may have their time from one wrong clock,
// so no site has more of a say than it must, however many gateways it has.
func spread(all []federation.Member, own string, n int) []federation.Member {
	type place struct {
		federation.Member
		turn int
	}
	turns := map[string]int{}
	places := make([]place, len(all))
	for i, m := range all {
		places[i] = place{m, 2 * turns[m.Site]}
		if turns[m.Site]++; m.Site == own {
			places[i].turn++
		}
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.turn, b.turn) })
	out := make([]federation.Member, min(n, len(all)))
	for i := range out {
		out[i] = places[i].Member
	}
	return out
}

// ask asks one gateway for its time.
func (w *Watch) ask(ctx context.Context, gateway string) answer {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	a := answer{gateway: gateway}
	client, err := w.cfg.Ask(gateway)
	if err != nil {
		a.err = err
		return a
	}
	before, began := w.cfg.Now(), w.cfg.Clock()
	r, err := client.Clock(ctx, &forwardpb.ClockRequest{})
	took := w.cfg.Clock() - began
	switch {
	case err != nil:
		a.err = err
	case r.GetNow() <= 0:
		a.err = errors.New("it tells no time")
	case took > wait:
		a.err = errors.New("it took too long")
	default:
		a.ahead = time.Unix(0, r.GetNow()).Sub(before.Add(took / 2))
	}
	return a
}

// weigh says whether what others said is enough.
func weigh(told []answer) error {
	var n, agree int
	var what []string
	for _, a := range told {
		switch {
		case a.err != nil:
			what = append(what, fmt.Sprintf("gateway %s does not answer (%v)", a.gateway, a.err))
			continue
		case a.ahead.Abs() <= Apart:
			agree++
		case a.ahead > 0:
			what = append(what, fmt.Sprintf("that of gateway %s is %s ahead", a.gateway, a.ahead.Round(time.Minute)))
		default:
			what = append(what, fmt.Sprintf("that of gateway %s is %s behind", a.gateway, (-a.ahead).Round(time.Minute)))
		}
		n++
	}
	if agree > 0 && 2*(agree+1) > n+1 {
		return nil
	}
	if n == 0 {
		what = append(what, "no other gateway answers")
	}
	return fmt.Errorf("%w: %s", ErrDisputed, strings.Join(what, ", "))
}

// ByWord reports whether a person said that a deleted volume is to be purged at once, so that no
// clock has a say: the purge is due less than a second after the deletion.
func ByWord(v federation.Volume) bool {
	kept := v.PurgeAfter.Sub(v.DeletedAt)
	return !v.PurgeAfter.IsZero() && kept >= 0 && kept < time.Second
}

// Clock implements the call of another gateway: it tells this one's time.
func (w *Watch) Clock(context.Context, *forwardpb.ClockRequest) (*forwardpb.ClockReply, error) {
	return &forwardpb.ClockReply{Now: w.cfg.Now().UnixNano()}, nil
}
