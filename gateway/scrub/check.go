// SPDX-License-Identifier: Apache-2.0

package scrub

import (
	"context"
	"errors"
	"math"

	"github.com/weir-storage/weir/engine/fsck"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/journal"
)

// logged is how many findings of a check are logged.
const logged = 20

// check checks the metadata of a copy that has the key, and returns how many things are wrong, as
// far as it came.
func (s *Scrubber) check(ctx context.Context, v *federation.Volume, c *copies.Copy) (findings int, complete bool) {
	name := v.Name
	cfg := fsck.Config{Most: logged, Segments: Lengths(c.Log), Pace: func(ctx context.Context, bytes int) error {
		s.sleep(ctx, v.Spec.Scrub.Pace(int64(bytes)))
		return ctx.Err()
	}}
	var report *fsck.Report
	var err error
	_, home := c.Leading()
	if home {
		report, err = c.Engine.Recount(ctx, cfg)
	}
	if !home || errors.Is(err, journal.ErrNotHome) {
		report, err = c.Engine.Check(ctx, cfg)
	}
	if ctx.Err() != nil {
		return 0, false
	}
	if err != nil {
		s.cfg.Logger.Warn("the check of a volume's metadata did not come to its end", "volume", name, "error", err)
	}
	if report == nil {
		return 0, false
	}
	for _, f := range report.Findings {
		s.cfg.Logger.Error("the check of a volume's metadata found something", "volume", name, "kind", f.Kind, "path", f.Path,
			"inode", f.Inode, "detail", f.Detail, "advice", f.Advice)
	}
	s.cfg.Logger.Info("a volume's metadata were checked", "volume", name, "findings", report.Count(), "complete", report.Complete,
		"inodes", report.Inodes, "names", report.Names, "extents", report.Extents, "orphans", report.Orphans,
		"snapshots", report.Snapshots, "pairs", report.Pairs)
	findings = report.Count()
	if home && err == nil {
		for _, f := range report.Findings {
			if f.Kind == fsck.Quota && f.Inode == 0 {
				findings-- // the home has counted again
			}
		}
	}
	return findings, report.Complete
}

// Lengths returns the lengths of segments. What is before the first known segment is taken for
// there: a copy may know of it by a checkpoint only.
func Lengths(l *log.Log) func(seq uint64) (uint64, bool) {
	all := l.Segments()
	return func(seq uint64) (uint64, bool) {
		if len(all) > 0 && seq < all[0].Seq {
			return math.MaxUint64, true
		}
		if end := l.End(); end.Seq == seq {
			return end.Off, true
		}
		info, ok := l.Segment(seq) // it does not grow: the end is beyond it
		return info.Len, ok
	}
}
