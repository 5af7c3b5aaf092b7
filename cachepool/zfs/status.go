// SPDX-License-Identifier: Apache-2.0

package zfs

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Class is what a device is for.
type Class string

// Classes of devices.
const (
	Data  Class = "Data"
	Log   Class = "Log"
	Cache Class = "Cache"
	Spare Class = "Spare" // also what this package does not know
)

// Device is a device of a ZFS pool.
type Device struct {
	Name  string // as zpool status shows it
	Class Class
	Group string // such as mirror-0; "": none
	State string // ONLINE, DEGRADED, FAULTED, OFFLINE, REMOVED, UNAVAIL, AVAIL
	// Read, Write and Checksum count errors since the pool was imported, or since zpool clear.
	Read, Write, Checksum int64
	Note                  string // what zpool says besides
}

// well reports whether the device does its work.
func (d Device) well() bool { return d.State == "ONLINE" || d.Class == Spare }

// Status is what zpool says of a ZFS pool.
type Status struct {
	Pool    string
	State   string // ONLINE, DEGRADED, FAULTED, UNAVAIL, SUSPENDED
	Says    string // what is wrong, in zpool's words; "": nothing
	Remedy  string // what zpool advises
	Lost    string // what it says of lost data; "": none is known
	Devices []Device
}

// Condition is a sentence about a pool, as in Kubernetes.
type Condition struct {
	Type    string
	Is      bool
	Reason  string // one word
	Message string // with a remedy
}

// Types of conditions.
const (
	Healthy     = "Healthy"
	Degraded    = "Degraded"
	SlogMissing = "SlogMissing"
	NearlyFull  = "NearlyFull"
	Rewound     = "Rewound"
)

// nearly is the share of a pool from which on it is nearly full, in percent. ZFS gets slow then.
const nearly = 90

// Status asks zpool how the pool is.
func (p *Pool) Status(ctx context.Context) (Status, error) {
	out, err := p.cfg.Tools.zpool(ctx, "status", p.name)
	if err != nil {
		return Status{}, err
	}
	return parseStatus(out)
}

// Watch looks how the pool is until ctx ends, and logs what has changed. It calls lost, once for
// each, with volumes that may have lost something while the pool was open.
func (p *Pool) Watch(ctx context.Context, every time.Duration, lost func(volume string, why error)) {
	conditions, volumes := map[string]string{}, p.folders.lost() // who opens those asks himself
	// Writing may hang with the disks, and that is to be told.
	marked := make(chan struct{})
	go func() {
		defer close(marked)
		repeat(ctx, every, func() { p.folders.markAll(ctx) })
	}()
	repeat(ctx, every, func() {
		now := p.folders.lost()
		for volume, why := range now {
			if volumes[volume] == nil || volumes[volume].Error() != why.Error() {
				lost(volume, why)
			}
		}
		volumes = now
		for _, c := range append(p.conditions(ctx), rewoundCondition(now)) {
			if ctx.Err() != nil {
				return
			}
			well := c.Is == (c.Type == Healthy)
			text := c.Reason
			if !well {
				text += c.Message
			}
			if was, ok := conditions[c.Type]; ok && was == text {
				continue
			}
			conditions[c.Type] = text
			level := slog.LevelInfo
			if !well {
				level = slog.LevelWarn
			}
			p.cfg.Log.Log(ctx, level, "ZFS pool", "pool", p.name, "condition", c.Type, "is", c.Is, "reason", c.Reason, "message", c.Message)
		}
	})
	select {
	case <-marked:
	case <-time.After(time.Second): // it hangs
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

// rewoundCondition tells of volumes that may have lost something.
func rewoundCondition(lost map[string]error) Condition {
	if len(lost) == 0 {
		return Condition{Rewound, false, "Well", "no dataset went back"}
	}
	all := slices.Sorted(maps.Keys(lost))
	return Condition{Rewound, true, "WentBack", fmt.Sprintf("%v: the copy is made anew from the volume's others; if none is whole, "+
		"go on with what is left by `weir failover --accept-loss`; so it is with volumes %s", lost[all[0]], strings.Join(all, ", "))}
}

// conditions asks how the pool is. What is not known is no condition.
func (p *Pool) conditions(ctx context.Context) []Condition {
	s, err := p.Status(ctx)
	if err != nil {
		return []Condition{{Healthy, false, "NoAnswer", err.Error()}}
	}
	full := 0
	out, err := p.cfg.Tools.zpool(ctx, "list", "-H", "-o", "capacity", p.name)
	if err == nil {
		full, _ = strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(out), "%")) // "-": nobody knows
	}
	return s.Conditions(p.cfg.Devices != nil && len(p.cfg.Devices.Log) > 0, full)
}

// parseStatus reads what zpool status prints of one pool.
func parseStatus(text string) (s Status, err error) {
	fields := map[string]string{}
	name, config := "", []string{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		before, value, found := strings.Cut(line, ":")
		word := strings.TrimSpace(before)
		switch {
		case found && !strings.HasPrefix(line, "\t") && !strings.Contains(word, " "):
			name = word
			fields[name] = strings.TrimSpace(value)
		case name == "config":
			config = append(config, line)
		case strings.TrimSpace(line) != "":
			fields[name] = strings.TrimSpace(fields[name] + " " + strings.TrimSpace(line))
		}
	}
	s = Status{Pool: fields["pool"], State: fields["state"], Says: fields["status"], Remedy: fields["action"], Lost: fields["errors"]}
	if !strings.Contains(s.Lost, "data errors") && !strings.Contains(s.Lost, "Permanent errors") || s.Lost == "No known data errors" {
		s.Lost = ""
	}
	if s.Pool == "" || s.State == "" {
		return s, fmt.Errorf("zpool status: no pool and state in %q", text)
	}
	s.Devices, err = parseDevices(s.Pool, config)
	return s, err
}

// parseDevices reads the tree of devices. A line is a device unless deeper ones follow.
func parseDevices(pool string, lines []string) (out []Device, err error) {
	classes := map[string]Class{pool: Data, "special": Data, "dedup": Data, "logs": Log, "cache": Cache}
	class, group := Data, ""
	var tree [][]string
	var depth []int
	for _, line := range lines {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "NAME" {
			continue
		}
		tree = append(tree, words)
		depth = append(depth, len(line)-len(strings.TrimLeft(line, " \t")))
	}
	for i, words := range tree {
		deeper := i+1 < len(tree) && depth[i+1] > depth[i]
		if depth[i] == slices.Min(depth) {
			known := false
			if class, known = classes[words[0]]; !known {
				class = Spare
			}
			group = ""
			continue
		}
		if deeper {
			group = words[0]
			continue
		}
		if i > 0 && depth[i] < depth[i-1] {
			group = ""
		}
		d := Device{Name: words[0], Class: class, Group: group}
		if len(words) > 1 {
			d.State = words[1]
		}
		if len(words) >= 5 && class != Spare {
			for j, n := range []*int64{&d.Read, &d.Write, &d.Checksum} {
				if *n, err = parseCount(words[2+j]); err != nil {
					return nil, fmt.Errorf("zpool status: device %s: %w", d.Name, err)
				}
			}
			d.Note = strings.Join(words[5:], " ")
		}
		out = append(out, d)
	}
	return out, nil
}

// parseCount reads a number such as 17 or 1.2K.
func parseCount(s string) (int64, error) {
	const units = "KMGTPE"
	scale := 1.0
	if i := strings.IndexByte(units, s[len(s)-1]); i >= 0 {
		for range i + 1 {
			scale *= 1024
		}
		s = s[:len(s)-1]
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no number", s)
	}
	return int64(n * scale), nil
}

// Conditions says how the pool is. A pool whose devices should include logs is told so; full is how
// full it is, in percent.
func (s Status) Conditions(logs bool, full int) []Condition {
	var ill, lost []string
	log := 0
	for _, d := range s.Devices {
		switch {
		case d.Class == Log && d.well() && d.Read+d.Write > 0: // zfs-fuse never calls it faulted
			lost = append(lost, fmt.Sprintf("%s failed %d reads and %d writes: if it is ill, run `zpool replace %s %s NEW`, "+
				"else `zpool clear %s`", d.Name, d.Read, d.Write, s.Pool, d.Name, s.Pool))
		case d.Class == Log && d.well():
			log++
		case d.Class == Log:
			lost = append(lost, fmt.Sprintf("%s is %s: run `zpool replace %s %s NEW`, or `zpool remove %s %s`",
				d.Name, d.State, s.Pool, d.Name, s.Pool, d.Name))
		case !d.well() && d.State != "":
			ill = append(ill, fmt.Sprintf("%s (%s) is %s", d.Name, strings.ToLower(string(d.Class)), d.State))
		case d.Read+d.Write > 0:
			ill = append(ill, fmt.Sprintf("%s (%s) failed %d reads and %d writes",
				d.Name, strings.ToLower(string(d.Class)), d.Read, d.Write))
		}
		if d.Checksum > 0 {
			ill = append(ill, fmt.Sprintf("%s gave %d damaged blocks", d.Name, d.Checksum))
		}
	}
	degraded := Condition{Degraded, len(ill) > 0 || s.Lost != "" || s.State != "ONLINE" && len(lost) == 0, "Well", "all devices work"}
	if degraded.Is {
		degraded.Reason = "DevicesFail"
		if s.Lost != "" {
			degraded.Reason = "DataLost"
		}
		degraded.Message = strings.Join(append(ill, s.sentences()...), "; ")
	}
	slog := Condition{SlogMissing, len(lost) > 0 || logs && log == 0, "Well", "writes are durable on the log devices"}
	switch {
	case !slog.Is && log == 0:
		slog.Reason, slog.Message = "NoLog", "the pool has no log devices: writes are durable on its data devices"
	case slog.Is:
		slog.Reason = "LogLost"
		if len(lost) == 0 {
			lost = []string{fmt.Sprintf("the log devices are not in the pool: run `zpool add %s log DEVICE`", s.Pool)}
		}
		slog.Message = strings.Join(lost, "; ") + ": until then writes wait for the data devices"
	}
	room := Condition{NearlyFull, full >= nearly, "Well", fmt.Sprintf("%d%% of the pool are used", full)}
	if room.Is {
		room.Reason = "Full"
		room.Message += ": ZFS gets slow from 90% on: free something else there, add devices, or lower the limit of the cache"
	}
	healthy := Condition{Healthy, s.State == "ONLINE" && !degraded.Is && !slog.Is, "Online", "zpool has nothing to say"}
	if !healthy.Is {
		healthy.Reason = "NotWell"
		healthy.Message = fmt.Sprintf("the pool is %s; see `zpool status %s`", s.State, s.Pool)
	}
	return []Condition{healthy, degraded, slog, room}
}

// sentences are what zpool says, and what it advises.
func (s Status) sentences() (out []string) {
	if s.Lost != "" {
		out = append(out, s.Lost)
	}
	for _, said := range []string{s.Says, s.Remedy} {
		if said = strings.TrimRight(said, "."); said != "" {
			out = append(out, said)
		}
	}
	return out
}
