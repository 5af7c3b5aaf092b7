// SPDX-License-Identifier: Apache-2.0

package zfs

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-storage/weir/cachepool"
)

// well reports whether the device does its work.
func well(d cachepool.Device) bool { return d.State == "ONLINE" || d.Class == cachepool.Spare }

// Status is what zpool says of a ZFS pool.
type Status struct {
	Pool    string
	State   string // ONLINE, DEGRADED, FAULTED, UNAVAIL, SUSPENDED
	Says    string // what is wrong, in zpool's words; "": nothing
	Remedy  string // what zpool advises
	Lost    string // what it says of lost data; "": none is known
	Devices []cachepool.Device
}

// Status asks zpool how the pool is.
func (p *Pool) Status(ctx context.Context) (Status, error) {
	out, err := p.cfg.Tools.zpool(ctx, "status", p.name)
	if err != nil {
		return Status{}, err
	}
	return parseStatus(out)
}

// durableCondition reads what `zfs get` says of sync, by dataset.
func durableCondition(text string) cachepool.Condition {
	var off []string
	for line := range strings.Lines(text) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), "\t"); value == "disabled" {
			off = append(off, name)
		}
	}
	if len(off) == 0 {
		return said(cachepool.NotDurable, false, "Well", "what is synced is durable")
	}
	return said(cachepool.NotDurable, true, "SyncDisabled", fmt.Sprintf("property sync is disabled for %s: what is acknowledged is lost "+
		"with the power, and nothing will tell: run `zfs set sync=standard %s` at once", strings.Join(off, ", "), off[0]))
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
func parseDevices(pool string, lines []string) (out []cachepool.Device, err error) {
	classes := map[string]cachepool.Class{pool: cachepool.Data, "special": cachepool.Special, "dedup": cachepool.Special,
		"logs": cachepool.Log, "cache": cachepool.Cache}
	class, group := cachepool.Data, ""
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
				class = cachepool.Spare
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
		d := cachepool.Device{Name: words[0], Class: class, Group: group}
		if len(words) > 1 {
			d.State = words[1]
		}
		if len(words) >= 5 && class != cachepool.Spare {
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
// full it is, in percent, or less than 0 if that is not known.
func (s Status) Conditions(logs bool, full int) []cachepool.Condition {
	var ill, lost []string
	log := 0
	for _, d := range s.Devices {
		switch {
		case d.Class == cachepool.Log && well(d) && d.Read+d.Write > 0: // zfs-fuse never calls it faulted
			lost = append(lost, fmt.Sprintf("%s fails %s: if it is ill, run `zpool replace %s %s NEW`, else `zpool clear %s`",
				d.Name, what(d), s.Pool, d.Name, s.Pool))
		case d.Class == cachepool.Log && well(d):
			log++
		case d.Class == cachepool.Log:
			lost = append(lost, fmt.Sprintf("%s is %s: run `zpool replace %s %s NEW`, or `zpool remove %s %s`",
				d.Name, d.State, s.Pool, d.Name, s.Pool, d.Name))
		case !well(d) && d.State != "":
			ill = append(ill, fmt.Sprintf("%s (%s) is %s", d.Name, strings.ToLower(string(d.Class)), d.State))
		case d.Read+d.Write > 0:
			ill = append(ill, fmt.Sprintf("%s (%s) fails %s", d.Name, strings.ToLower(string(d.Class)), what(d)))
			if d.Class == cachepool.Cache { // it is not used again by itself
				ill = append(ill, fmt.Sprintf("nothing is lost by that: run `zpool remove %s %s`, and `zpool add %[1]s cache DEVICE`",
					s.Pool, d.Name))
			}
		}
		if d.Checksum > 0 {
			ill = append(ill, d.Name+" gave damaged blocks")
		}
	}
	degraded := said(cachepool.Degraded, len(ill) > 0 || s.Lost != "" || s.State != "ONLINE" && len(lost) == 0, "Well", "all devices work")
	if degraded.Is {
		degraded.Reason = "DevicesFail"
		if s.Lost != "" {
			degraded.Reason = "DataLost"
		}
		degraded.Message = strings.Join(append(ill, s.sentences()...), "; ")
	}
	slog := said(cachepool.SlogMissing, len(lost) > 0 || logs && log == 0, "Well", "writes are durable on the log devices")
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
	room := cachepool.FullCondition("the pool", full, 90,
		"ZFS gets slow from 90% on: free something else there, add devices, or lower the limit of the cache")
	healthy := said(cachepool.Healthy, s.State == "ONLINE" && !degraded.Is && !slog.Is, "Online", "zpool has nothing to say")
	if !healthy.Is {
		healthy.Reason = "NotWell"
		healthy.Message = fmt.Sprintf("the pool is %s; see `zpool status %s`", s.State, s.Pool)
	}
	if full < 0 {
		return []cachepool.Condition{healthy, degraded, slog}
	}
	return []cachepool.Condition{healthy, degraded, slog, room}
}

// what tells what a device fails. How often is in Device: a message that counts would always be
// news.
func what(d cachepool.Device) string {
	switch {
	case d.Read == 0:
		return "writes"
	case d.Write == 0:
		return "reads"
	}
	return "reads and writes"
}

// said is a condition.
func said(kind string, is bool, reason, message string) cachepool.Condition {
	return cachepool.Condition{Type: kind, Is: is, Reason: reason, Message: message}
}

// sentences are what zpool says, and what it advises.
func (s Status) sentences() (out []string) {
	if s.Lost != "" {
		out = append(out, strings.TrimLeft(s.Lost, "0123456789 "))
	}
	for _, said := range []string{s.Says, s.Remedy} {
		if said = strings.TrimRight(said, "."); said != "" {
			out = append(out, said)
		}
	}
	return out
}
