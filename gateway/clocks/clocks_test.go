// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"google.golang.org/grpc"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// rig is a federation with a Watch of gateway a.
type rig struct {
	*Watch
	fake    *clockwork.FakeClock
	mu      sync.Mutex
	wrong   time.Duration            // by which a's wall clock is ahead
	others  map[string]time.Duration // by which those of others are
	dead    map[string]bool          // have no heartbeat
	mute    map[string]bool          // answer with an error
	asked   []string
	jumps   int
	unheard bool // the registry said nothing yet
}

type told struct {
	forwardpb.ForwardClient
	r    *rig
	name string
}

func (c told) Clock(context.Context, *forwardpb.ClockRequest, ...grpc.CallOption) (*forwardpb.ClockReply, error) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.r.asked = append(c.r.asked, c.name); c.r.mute[c.name] {
		return nil, errors.New("it is mute")
	}
	return &forwardpb.ClockReply{Now: c.r.fake.Now().Add(c.r.others[c.name]).UnixNano()}, nil
}

func (r *rig) Members() []federation.Member {
	out := []federation.Member{{Gateway: "a", Site: "s"}}
	for _, name := range []string{"b", "c", "d"} {
		if _, ok := r.others[name]; ok {
			out = append(out, federation.Member{Gateway: name, Site: map[bool]string{true: "s", false: "far"}[name == "b"]})
		}
	}
	return out
}

func (r *rig) Living() (out []string, synced bool) {
	for _, m := range r.Members() {
		if !r.dead[m.Gateway] {
			out = append(out, m.Gateway)
		}
	}
	return out, !r.unheard
}

func (r *rig) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fake.Now().Add(r.wrong)
}

func (r *rig) jump(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong += d
}

func newRig(t *testing.T, others map[string]time.Duration) *rig {
	r := &rig{fake: clockwork.NewFakeClockAt(time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)), others: others, dead: map[string]bool{},
		mute: map[string]bool{}}
	began := r.fake.Now()
	r.Watch = New(Config{Gateway: "a", Site: "s", Others: r, Now: r.now, Clock: func() time.Duration { return r.fake.Now().Sub(began) },
		Ask:    func(name string) (forwardpb.ForwardClient, error) { return told{r: r, name: name}, nil },
		Timers: r.fake, Logger: slog.New(slog.DiscardHandler), Jumped: func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.jumps++
		}})
	return r
}

// says returns what Agreed says: "" for a time that is that of this gateway's clock.
func (r *rig) says(t *testing.T) string {
	t.Helper()
	now, err := r.Agreed(t.Context())
	if err != nil {
		if !errors.Is(err, ErrDisputed) || r.Disputed() == nil {
			t.Errorf("error is %v, and it is told that %v", err, r.Disputed())
		}
		return err.Error()
	}
	if !now.Equal(r.now()) || r.Disputed() != nil {
		t.Errorf("it is %v, want %v; told is %v", now, r.now(), r.Disputed())
	}
	return ""
}

// TestWhoseClockDecides: which clocks of how many gateways let something go.
func TestWhoseClockDecides(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name    string
		wrong   time.Duration
		others  map[string]time.Duration
		dead    string
		mute    string
		unheard bool
		want    string // part of why nothing goes; empty: it may
	}{
		{name: "all alike", others: map[string]time.Duration{"b": 0, "c": time.Second, "d": -time.Second}},
		{name: "ahead of the only other", wrong: day, others: map[string]time.Duration{"b": 0}, want: "gateway b is 24h0m0s behind"},
		{name: "behind the only other", others: map[string]time.Duration{"c": day}, want: "gateway c is 24h0m0s ahead"},
		{name: "ahead of two", wrong: day, others: map[string]time.Duration{"b": 0, "c": 0}, want: "gateway c is 24h0m0s behind"},
		{name: "one of three is wrong, not this", others: map[string]time.Duration{"b": -day, "c": 0}},
		{name: "two of four are wrong", others: map[string]time.Duration{"b": day, "c": day, "d": 0}, want: "gateway b is 24h0m0s ahead"},
		{name: "the others agree, and it does not", wrong: 2 * time.Minute, others: map[string]time.Duration{"b": 0, "c": 0, "d": 0},
			want: "2m0s behind"},
		{name: "within a minute", wrong: 50 * time.Second, others: map[string]time.Duration{"b": 0}},
		{name: "nobody lives", others: map[string]time.Duration{"b": 0, "c": 0}, dead: "bc", want: "no other gateway answers"},
		{name: "nobody answers", others: map[string]time.Duration{"b": 0}, mute: "b", want: "it is mute"},
		{name: "one answers", others: map[string]time.Duration{"b": 0, "c": 0, "d": 0}, mute: "b", dead: "c"},
		{name: "it is not known who is there", others: map[string]time.Duration{"b": 0}, unheard: true, want: "has not told"},
		{name: "alone", want: "no other gateway is registered"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, tt.others)
			r.wrong, r.unheard = tt.wrong, tt.unheard
			for _, name := range []string{"b", "c", "d"} {
				r.dead[name], r.mute[name] = strings.Contains(tt.dead, name), strings.Contains(tt.mute, name)
			}
			if got := r.says(t); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("it says %q, want %q", got, tt.want)
			}
		})
	}
}

// TestAgreementEnds: what others said holds for a minute, and not once the wall clock jumped.
func TestAgreementEnds(t *testing.T) {
	r := newRig(t, map[string]time.Duration{"c": 0})
	count := func(want int) {
		t.Helper()
		if len(r.asked) != want {
			t.Fatalf("others were asked %d times, want %d", len(r.asked), want)
		}
	}
	for range 3 {
		if got := r.says(t); got != "" {
			t.Fatal(got)
		}
	}
	count(1)
	r.jump(time.Hour) // before Run has looked
	if got := r.says(t); !strings.Contains(got, "1h0m0s behind") {
		t.Errorf("after a jump it says %q", got)
	}
	count(2)
	r.jump(-time.Hour)
	if got := r.says(t); got != "" {
		t.Errorf("set right, it says %q", got)
	}
	count(3)
	r.fake.Advance(holds - time.Second)
	r.says(t)
	count(3)
	r.others["c"] = -time.Hour
	r.fake.Advance(time.Second)
	if got := r.says(t); got == "" {
		t.Error("what others say now is not asked for")
	}
	count(4)
	r.others["c"] = 0
	r.fake.Advance(refused)
	if got := r.says(t); got != "" {
		t.Errorf("once they agree, it says %q", got)
	}
}

// TestAloneItWaits: the only gateway of a federation waits for ten minutes after it started, and
// after each jump of its clock.
func TestAloneItWaits(t *testing.T) {
	r := newRig(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	if err := r.fake.BlockUntilContext(ctx, 1); err != nil {
		t.Fatal(err)
	}
	r.fake.Advance(Alone - time.Second)
	if got := r.says(t); got == "" {
		t.Error("it does not wait for ten minutes")
	}
	r.fake.Advance(refused)
	if got := r.says(t); got != "" {
		t.Errorf("after ten minutes it says %q", got)
	}
	r.jump(365 * 24 * time.Hour)
	for {
		r.mu.Lock()
		jumped := r.jumps > 0
		r.mu.Unlock()
		if jumped {
			break
		}
		r.fake.Advance(look)
		time.Sleep(time.Millisecond) // Run is another goroutine
	}
	if got := r.says(t); got == "" {
		t.Error("its clock jumped by a year, and it believes that")
	}
	r.fake.Advance(Alone)
	if got := r.says(t); got != "" {
		t.Errorf("ten minutes after the jump it says %q", got)
	}
	cancel()
	<-done
}

// TestSpread: sites are asked in turn, also where one has more gateways than are asked.
func TestSpread(t *testing.T) {
	var all []federation.Member
	for _, name := range strings.Fields("own1 own2 big1 big2 big3 big4 big5 big6 big7 big8 big9 far1 off1 off2") {
		all = append(all, federation.Member{Gateway: name, Site: name[:3]})
	}
	for n, want := range map[int]string{
		0: "", 3: "big1 far1 off1", 8: "big1 far1 off1 own1 big2 off2 own2 big3", 99: "big1 far1 off1 own1 big2 off2 own2 big3 big4 big5 " +
			"big6 big7 big8 big9",
	} {
		var got []string
		for _, m := range spread(all, "own", n) {
			got = append(got, m.Gateway)
		}
		if is := strings.Join(got, " "); is != want {
			t.Errorf("of all, %d are %q, want %q", n, is, want)
		}
	}
}
