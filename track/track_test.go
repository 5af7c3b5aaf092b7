// SPDX-License-Identifier: Apache-2.0

package track_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/track"
)

// clock is a clock that a test moves.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

// spans notes what a Tracer is told, one line each.
type spans struct {
	c    *clock
	told []string
}

func (s *spans) Start(ctx context.Context, name string, _ ...slog.Attr) (context.Context, func(...slog.Attr)) {
	began := s.c.now
	return ctx, func(...slog.Attr) { s.Past(ctx, name, began, s.c.now) }
}

func (s *spans) Past(_ context.Context, name string, began, ended time.Time) {
	s.told = append(s.told, fmt.Sprintf("%s %d-%d", name, began.Second(), ended.Second()))
}

func TestPartsOfAnOperation(t *testing.T) {
	c := &clock{time.Unix(0, 0)}
	tracer := &spans{c: c}
	op := &track.Op{Now: c.Now, Tracer: tracer}
	ctx := track.With(context.Background(), op)
	inner, end := track.Begin(ctx, track.Home)
	c.pass(2 * time.Second)
	_, endInner := track.Begin(inner, track.Fetch)
	c.pass(time.Second)
	endInner()
	end()
	c.pass(7 * time.Second)
	track.Past(ctx, []track.Part{track.Disk, track.Members}, 3*time.Second, 4*time.Second)
	if got := fmt.Sprint(op.Parts()); got != "[home=3s disk=3s members=4s fetch=1s]" {
		t.Error(got)
	}
	if got := strings.Join(tracer.told, ", "); got != "fetch 2-3, home 0-3, members 6-10, disk 3-6" {
		t.Error(got)
	}
	op.Reset()
	if len(op.Parts()) > 0 {
		t.Error(op.Parts())
	}
	_, end = track.Begin(context.Background(), track.Home) // nobody wants to know
	end()
	track.Past(context.Background(), []track.Part{track.Disk}, time.Second)
}

// A volume without a home does not fill the log.
func TestSlowOperationsAreLoggedSeldom(t *testing.T) {
	var out bytes.Buffer
	c := &clock{time.Unix(1000, 0)}
	s := &track.Slow{After: time.Second, Log: slog.New(slog.NewTextHandler(&out, nil)), Now: c.Now}
	op := &track.Op{Now: c.Now}
	asked := 0
	tell := func(took time.Duration) {
		s.Tell(op, "slow", took, func() []slog.Attr { asked++; return []slog.Attr{slog.String("volume", "v")} })
	}
	tell(time.Second - 1)
	if out.Len() > 0 {
		t.Fatal(out.String())
	}
	for range 100 {
		tell(2 * time.Second)
	}
	if n := strings.Count(out.String(), "\n"); n != 10 || asked != 10 {
		t.Fatalf("%d lines, asked %d times", n, asked)
	}
	out.Reset()
	c.pass(time.Second)
	_, end := track.Begin(track.With(context.Background(), op), track.NoHome)
	c.pass(time.Minute)
	end()
	tell(time.Minute)
	if got := out.String(); !strings.Contains(got, "volume=v took=1m0s waited.no_home=1m0s not_logged_before=90") {
		t.Error(got)
	}
	(&track.Slow{Now: c.Now}).Tell(op, "off", time.Hour, nil)
	(*track.Slow)(nil).Tell(op, "off", time.Hour, nil)
}

func BenchmarkPart(b *testing.B) {
	ctx := track.With(context.Background(), &track.Op{Now: time.Now})
	b.ReportAllocs()
	for b.Loop() {
		_, end := track.Begin(ctx, track.Home)
		end()
	}
}
