// SPDX-License-Identifier: Apache-2.0

package fsck

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
)

// Config is what Check looks at, and how. View must be set.
type Config struct {
	// View is the metadata at one moment, of the present and of committed records only. One
	// goroutine uses it. The caller closes it.
	View *meta.View
	// Next is the number of the next record of the home; 0: the first of the next epoch.
	Next uint64
	// Segments returns the length in bytes of a segment of the log, and reports whether there is
	// one; nil: blocks are not looked for.
	Segments func(seq uint64) (length uint64, ok bool)
	// Blocks reads and opens blocks, of which there are at most 64. It returns an error for each
	// that it cannot read, nil for the others. The second error ends the check. nil: data is not
	// read.
	Blocks func(ctx context.Context, refs []segment.BlockRef) ([]error, error)
	// Entries is how many inodes are looked for at a time, at 48 bytes each; 0: two million.
	Entries int
	// Most is how many findings are kept; 0: 1000.
	Most int
	// Pace is called before more is read than the given number of bytes, and may wait; nil: the
	// check goes as fast as it can. An error ends the check.
	Pace func(ctx context.Context, bytes int) error
	// Progress is told now and then how far the check is. It must not block. nil: nobody is.
	Progress func(Progress)
}

const (
	defaultEntries = 2 << 20
	defaultMost    = 1000
	// paceBytes is how much is read between two calls of Pace.
	paceBytes = 256 << 10
)

// checker is one check.
type checker struct {
	Config
	ctx      context.Context
	report   Report
	state    meta.State
	versions meta.VersionsOf
	kept     []meta.Snapshot // sorted by generation
	// The segments that were condemned: some hundred thousand in 10 TB.
	condemned map[uint64]bool
	packs     packs
	held      uint64 // bytes that only snapshots hold
	seed      maphash.Seed
	dirty     bool // fewer values parse than there are: sums say nothing for certain

	stopped  bool // metadata cannot be read, which is a finding
	progress Progress
	read     int // bytes since the last Pace
}

// errStop ends a check that cannot go on.
var errStop = errors.New("the check cannot go on")

// Check checks a volume's metadata. The error is that of ctx, Pace or Blocks: then the report says
// what was found before. Whatever is wrong with the volume is a finding.
func Check(ctx context.Context, cfg Config) (*Report, error) {
	c := &checker{Config: cfg, ctx: ctx, seed: maphash.MakeSeed()}
	if c.Entries <= 0 {
		c.Entries = defaultEntries
	}
	if c.Most <= 0 {
		c.Most = defaultMost
	}
	c.report.Findings = []Finding{}
	err := c.check()
	if errors.Is(err, errStop) {
		err = nil
	} else if err == nil {
		c.report.Complete = true
	}
	return &c.report, err
}

func (c *checker) check() error {
	if err := c.begin(); err != nil {
		return err
	}
	steps := []func() error{c.allPairs, c.allSnapshots, c.history, c.dead}
	if c.report.Rolling = c.versions.Rolling != 0; !c.report.Rolling {
		steps = append(steps, c.present)
	}
	steps = append(steps, c.past, c.data, c.paths)
	for _, step := range steps {
		if err := step(); err != nil {
			if errors.Is(err, errStop) {
				c.stopped = true
				_ = c.paths() // as far as metadata can be read
			}
			return err
		}
	}
	return nil
}

// begin reads what all steps need.
func (c *checker) begin() error {
	c.step("state", 0)
	c.versions.Level = 1
	for _, key := range [][]byte{meta.AppliedKey(), meta.VersionsKey(), meta.AccountingKey()} {
		value, ok, err := c.get(c.View, key)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		switch meta.Table(key[0]) {
		case meta.Applied:
			c.state, err = meta.DecodeState(key, value)
		case meta.Versions:
			var newer *meta.NewerError
			if c.versions, err = meta.DecodeVersions(key, value); errors.As(err, &newer) {
				c.add(Finding{Kind: Malformed, Detail: err.Error(), Advice: "run the check of a newer release"})
				return errStop
			}
		default:
			c.report.Stored, err = meta.DecodeAccounting(key, value)
		}
		if err != nil {
			c.dirty = true // allPairs tells it
		}
	}
	if c.Next == 0 {
		c.Next = (c.state.Epoch + 1) << 40
	}
	c.condemned = map[uint64]bool{}
	lo, hi := meta.AllCondemned()
	err := c.each(c.View, lo, hi, func(p meta.Pair) error {
		if meta.CheckPair(p.Key, p.Value) == nil {
			c.condemned[meta.Of(p.Key)] = true
		}
		return nil
	})
	if err == nil {
		err = c.beginPacks()
	}
	if err != nil {
		return err
	}
	lo, hi = meta.SnapshotRange(0)
	return c.each(c.View, lo, hi, func(p meta.Pair) error {
		if meta.CheckPair(p.Key, p.Value) != nil {
			return nil // allPairs tells it
		}
		s, err := meta.DecodeSnapshot(p.Key, p.Value)
		c.kept = append(c.kept, s)
		return err
	})
}

// add notes a finding.
func (c *checker) add(f Finding) {
	if f.Advice == "" {
		f.Advice = f.Kind.Advice()
	}
	if len(c.report.Findings) >= c.Most {
		c.report.More++
		return
	}
	c.report.Findings = append(c.report.Findings, f)
}

// stop notes that metadata cannot be read, and ends the check.
func (c *checker) stop(err error) error {
	if cerr := c.ctx.Err(); cerr != nil {
		return cerr
	}
	if c.stopped {
		return errStop
	}
	c.add(Finding{Kind: Unreadable, Detail: fmt.Sprintf("metadata cannot be read, and nothing after that was checked: %v", err)})
	return errStop
}

// get returns the value of a key.
func (c *checker) get(v *meta.View, k []byte) ([]byte, bool, error) {
	value, ok, _, err := v.Get(k)
	if err != nil {
		return nil, false, c.stop(err)
	}
	return value, ok, c.tick(len(k) + len(value))
}

// each calls f with each pair of a range.
func (c *checker) each(v *meta.View, lo, hi []byte, f func(p meta.Pair) error) error {
	for p, err := range v.Range(lo, hi) {
		if err != nil {
			return c.stop(err)
		}
		if err := c.tick(len(p.Key) + len(p.Value)); err != nil {
			return err
		}
		if err := f(p); err != nil {
			return err
		}
	}
	return nil
}

// step begins a part of the check.
func (c *checker) step(name string, total uint64) {
	c.progress = Progress{Step: name, Total: total}
	c.tell()
}

func (c *checker) tell() {
	if c.Progress != nil {
		c.Progress(c.progress)
	}
}

// tick counts what was read, and waits if it is much.
func (c *checker) tick(n int) error {
	c.progress.Done++
	c.read += n
	if c.read < paceBytes {
		return nil
	}
	n, c.read = c.read, 0
	c.tell()
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if c.Pace == nil {
		return nil
	}
	return c.Pace(c.ctx, n)
}
