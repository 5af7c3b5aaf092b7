// SPDX-License-Identifier: Apache-2.0

package checking

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/fsck"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/scrub"
	"github.com/weir-storage/weir/store"
)

// Config is a copy and what to do with it. Log must be set. The copy must not be closed before Run
// has returned.
type Config struct {
	Volume string // UUID
	Log    *log.Log
	Engine *engine.Engine // nil: the copy holds ciphertext only
	Keys   *segment.Keys  // the volume's data keys; nil: none is known
	Store  store.Store    // of the site of the copy; nil: it has none, or it is not asked
	Home   bool           // the copy's gateway is the volume's home: it may count again
	Data   bool           // read all data too
	Repair bool
	// Differs is the number of the newest checkpoint, if the copy made another one than the home.
	Differs uint64
	// Fetching: what the log lacks is being fetched from others, so it is no damage. Otherwise it
	// is looked for in the log's sources.
	Fetching bool
	// HealPack replaces a pack, by its number, that the site's store has damaged, or lacks, if it
	// does. nil: nobody can.
	HealPack func(ctx context.Context, number uint64) error
	// Progress is told now and then how far the check is. It must not block. nil: nobody is.
	Progress func(Progress)
}

// most is how many findings of the metadata are kept.
const most = 10000

// checker is one check.
type checker struct {
	Config
	report Report
	bad    map[uint64]*state // segments of which something is wrong, or might be
	order  []*state          // the same, oldest first
	opened map[uint64]bool   // segments whose blocks were all opened
	shut   map[segment.BlockRef]error
	said   map[segment.BlockRef]Place // where blocks are damaged
	buf    []byte                     // a segment

	badPacks []*badPack
}

// Run checks a copy. The report says what was found, also if an error says why the check did not
// come to its end: that of ctx, of a store that does not answer, or of the copy.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	c := &checker{Config: cfg, bad: map[uint64]*state{}, opened: map[uint64]bool{}, shut: map[segment.BlockRef]error{},
		said: map[segment.BlockRef]Place{}}
	c.report = Report{UUID: cfg.Volume, Home: cfg.Home, Blind: cfg.Engine == nil, Data: cfg.Data, Repair: cfg.Repair, Damage: []Damage{}}
	err := c.run(ctx)
	if err != nil {
		return &c.report, fmt.Errorf("check volume %s: %w", cfg.Volume, err)
	}
	return &c.report, nil
}

func (c *checker) run(ctx context.Context) error {
	if err := c.segments(ctx); err != nil {
		return err
	}
	if err := c.packs(ctx); err != nil {
		return err
	}
	meta, metaErr := c.metadata(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if c.Repair {
		for i, s := range c.order {
			c.tell(Progress{Step: "repair", Done: uint64(i), Total: uint64(len(c.order))})
			if err := c.repair(ctx, s); err != nil {
				return errors.Join(err, metaErr)
			}
		}
		if err := c.repairPacks(ctx); err != nil {
			return errors.Join(err, metaErr)
		}
	}
	c.tellSegments(ctx)
	c.tellPacks()
	if c.Differs != 0 {
		c.report.add(Damage{Where: Metadata, Kind: KindCheckpoint, Advice: adviceAnew,
			Detail: fmt.Sprintf("at checkpoint %d they are not those of the home: one of the two is damaged", c.Differs)})
	}
	if meta != nil {
		counted, why := c.recount(ctx, meta)
		c.tellMetadata(meta, counted, why)
	}
	c.report.Complete = metaErr == nil && (meta == nil || meta.Complete)
	return errors.Join(metaErr, ctx.Err())
}

func (c *checker) tell(p Progress) {
	if c.Progress != nil {
		c.Progress(p)
	}
}

// metadata checks the metadata, and the blocks that might be damaged; nil: there are none.
func (c *checker) metadata(ctx context.Context) (*fsck.Report, error) {
	if c.Engine == nil {
		return nil, nil
	}
	cfg := c.metadataConfig()
	if c.Data || len(c.bad) > 0 {
		cfg.Blocks = c.blocks
	}
	return c.Engine.Check(ctx, cfg)
}

func (c *checker) metadataConfig() fsck.Config {
	return fsck.Config{Most: most, Segments: scrub.Lengths(c.Log), Progress: func(p fsck.Progress) {
		c.tell(Progress{Step: p.Step, Done: p.Done, Total: p.Total})
	}}
}

// miscounted reports whether a finding says that what the volume uses is counted wrongly.
func miscounted(f *fsck.Finding) bool { return f.Kind == fsck.Quota && f.Inode == 0 }

// recount has the home set right what the volume counts as used (checking-4). counted: it is right
// now; otherwise the error says why not.
func (c *checker) recount(ctx context.Context, meta *fsck.Report) (counted bool, why error) {
	wrong := false
	for i := range meta.Findings {
		wrong = wrong || miscounted(&meta.Findings[i])
	}
	switch {
	case !wrong || !c.Repair:
		return false, nil
	case !c.Home:
		return false, errors.New("only the volume's home counts again: run it there")
	}
	again, err := c.Engine.Recount(ctx, c.metadataConfig())
	if err != nil {
		return false, err
	}
	if again.Rolling || !again.Counted {
		return false, errors.New("it could not be counted again")
	}
	return true, nil
}

// tellMetadata notes what the check of the metadata found.
func (c *checker) tellMetadata(meta *fsck.Report, counted bool, why error) {
	for i := range meta.Findings {
		f := &meta.Findings[i]
		d := Damage{Where: Metadata, Kind: f.Kind, Path: f.Path, Inode: f.Inode, From: f.From, To: f.To, Segment: f.Block.Seq,
			Detail: f.Detail, Advice: f.Advice}
		if where, ok := c.said[f.Block]; ok && f.Kind == fsck.Unreadable {
			d.Where = where
		}
		switch s := c.bad[f.Block.Seq]; {
		case miscounted(f) && counted, d.Where != Metadata && s != nil && s.whole() && c.shut[f.Block] == nil:
			d.Repaired, d.Advice = true, ""
		case miscounted(f) && why != nil:
			d.Detail += ": not repaired: " + why.Error()
		case d.Where == Metadata && !miscounted(f) && f.Kind != fsck.Unreadable:
			d.Advice = adviceAnew
		case d.Where == Pool || d.Where == Store:
			d.Advice = adviceRepair
		}
		c.report.add(d)
	}
	c.report.More = meta.More
	meta.Findings, meta.More = nil, 0
	c.report.Metadata = meta
}
