// SPDX-License-Identifier: Apache-2.0

package zfs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-storage/weir/cachepool"
)

// How long after the pool was opened its history is read again, and how often then: a command that
// takes datasets back is noted there when it has ended.
const (
	reviewFirst = time.Minute
	reviewEvery = time.Hour
)

// silent is how long ago the last answer of zpool may be. It is told then that it gives none.
const silent = 10 * time.Second

// Watch looks how the pool is until ctx ends, and logs what has changed. It calls lost, once for
// each, with volumes that may have lost something while the pool was open. Commands and writing may
// hang with the disks, and all else goes on.
func (p *Pool) Watch(ctx context.Context, every time.Duration, lost func(volume string, why error)) {
	volumes := p.folders.lost() // who opens those asks himself
	var work sync.WaitGroup
	work.Go(func() { repeat(ctx, every, func() { p.folders.markAll(ctx) }) })
	work.Go(func() { repeat(ctx, every, func() { p.look(ctx) }) })
	work.Go(func() { p.keepTuned(ctx) })
	conditions := map[string]string{}
	work.Go(func() { repeat(ctx, min(every, time.Second), func() { p.tell(ctx, conditions) }) })
	work.Go(func() {
		for wait := reviewFirst; ; wait = reviewEvery {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			if err := p.folders.review(ctx); err != nil && ctx.Err() == nil {
				p.cfg.Log.Warn("the history of the ZFS pool cannot be read; trying again", "pool", p.name, "error", err)
			}
		}
	})
	repeat(ctx, min(every, time.Second), func() {
		now := p.folders.lost()
		for volume, why := range now {
			if !errors.Is(volumes[volume], why) {
				lost(volume, why)
			}
		}
		volumes = now
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		work.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(time.Second): // something hangs
	}
}

// repeat calls f at once, and then again and again until ctx ends.
func repeat(ctx context.Context, every time.Duration, f func()) {
	t := time.NewTicker(every)
	defer t.Stop()
	for ctx.Err() == nil {
		f()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
}

// Report returns how the pool is, as far as Watch has seen. It asks nobody, so it never waits.
func (p *Pool) Report() cachepool.Report {
	last := p.looked.Load()
	if last == nil {
		return cachepool.Report{Path: p.cfg.Path, Dataset: p.cfg.Dataset}
	}
	out := *last
	out.Conditions = append(slices.Clone(out.Conditions), rewoundCondition(p.folders.lost()))
	if age := time.Since(out.At); age > silent && !out.At.IsZero() {
		i := slices.IndexFunc(out.Conditions, func(c cachepool.Condition) bool { return c.Type == cachepool.Healthy })
		why := ""
		if err := p.failed.Load(); err != nil {
			why = fmt.Sprintf(" (%v)", *err)
		}
		out.Conditions[i] = noAnswer(fmt.Sprintf("zpool has not answered since %s%s: the pool may have lost its devices, "+
			"see `zpool status %s`", out.At.UTC().Format(time.TimeOnly), why, p.name))
	}
	return out
}

func noAnswer(why string) cachepool.Condition {
	return said(cachepool.Healthy, false, "NoAnswer", why)
}

// tell logs conditions that are not as they were when it was called before.
func (p *Pool) tell(ctx context.Context, was map[string]string) {
	for _, c := range p.Report().Conditions {
		if ctx.Err() != nil {
			return
		}
		text := c.Reason
		if !c.Well() {
			text += c.Message
		}
		if before, ok := was[c.Type]; ok && before == text {
			continue
		}
		was[c.Type] = text
		level := slog.LevelInfo
		if !c.Well() {
			level = slog.LevelWarn
		}
		p.cfg.Log.Log(ctx, level, "ZFS pool", "pool", p.name, "condition", c.Type, "is", c.Is, "reason", c.Reason, "message", c.Message)
	}
}

// rewoundCondition tells of volumes that may have lost something.
func rewoundCondition(lost map[string]error) cachepool.Condition {
	if len(lost) == 0 {
		return said(cachepool.Rewound, false, "Well", "no dataset went back")
	}
	all := slices.Sorted(maps.Keys(lost))
	return said(cachepool.Rewound, true, "WentBack", fmt.Sprintf("%v: the copy is made anew from the volume's others; if none is whole, "+
		"go on with what is left by `weir failover --accept-loss`; so it is with volumes %s", lost[all[0]], strings.Join(all, ", ")))
}

// look asks how the pool is, and keeps it for Report: what zpool status says at once, for commands
// that come after it may hang. What is not known is no condition.
func (p *Pool) look(ctx context.Context) {
	out := cachepool.Report{Path: p.cfg.Path, Dataset: p.cfg.Dataset}
	was := p.looked.Load()
	if was != nil {
		out = *was
	}
	s, err := p.Status(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil { // it was so when somebody answered last
		p.failed.Store(&err)
		if was == nil || was.At.IsZero() {
			out.Conditions = []cachepool.Condition{noAnswer(err.Error())}
			p.looked.Store(&out)
		}
		return
	}
	p.failed.Store(nil)
	out.At, out.State, out.Devices = time.Now(), s.State, s.Devices
	logs := p.cfg.Devices != nil && len(p.cfg.Devices.Log) > 0
	out.Conditions = s.Conditions(logs, unknown)
	for _, c := range []string{cachepool.NearlyFull, cachepool.NotDurable} { // as it was
		if was != nil {
			i := slices.IndexFunc(was.Conditions, func(w cachepool.Condition) bool { return w.Type == c })
			if i >= 0 {
				out.Conditions = append(out.Conditions, was.Conditions[i])
			}
		}
	}
	early := out
	p.looked.Store(&early)
	if time.Since(p.hung) < hungFor {
		return
	}
	within, cancel := context.WithTimeout(ctx, restTime)
	defer cancel()
	p.rest(within, &out, s, logs)
	switch {
	case ctx.Err() != nil:
	case within.Err() != nil:
		p.hung = time.Now()
	default:
		p.looked.Store(&out)
	}
}

// The commands after zpool status may hang while that does not, so they have little time together,
// and are left out for a while if they hung.
const (
	restTime = 5 * time.Second
	hungFor  = time.Minute
)

// rest asks what zpool status does not say.
func (p *Pool) rest(ctx context.Context, out *cachepool.Report, s Status, logs bool) {
	full := unknown
	text, err := p.cfg.Tools.zpool(ctx, "list", "-H", "-o", "capacity", p.name)
	if n, nerr := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(text), "%")); err == nil && nerr == nil {
		full = n
	}
	out.Conditions = s.Conditions(logs, full)
	// zfs-fuse has no such property: that is an error.
	text, err = p.cfg.Tools.zfs(ctx, "get", "-H", "-t", "filesystem", "-d", "2", "-o", "name,value", "sync", p.cfg.Dataset)
	if err == nil {
		out.Conditions = append(out.Conditions, durableCondition(text))
	}
	if text, err := p.cfg.Tools.zpool(ctx, "iostat", "-v", p.name); err == nil {
		out.Classes = p.cfg.Tools.classes(text, s)
	}
	out.ARC, out.L2ARC = p.cfg.Tools.tiers()
}

// unknown is how full a pool is of which that is not known.
const unknown = -1
