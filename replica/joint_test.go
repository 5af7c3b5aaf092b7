// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/cachepool/failstop"
	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/memvol"
)

// How the random test of crashes runs. WEIR_SOAK=1 goes on with fresh seeds.
var (
	oneSeed = flag.Uint64("seed", 0, "run the random test of crashes with this seed only; 0: with the usual ones")
	soak    = flag.Duration("soak", 10*time.Minute, "how long that test goes on with fresh seeds, with WEIR_SOAK=1")
)

// volumeMachine is an engine.
type volumeMachine interface {
	journal.Machine
	Replay(ctx context.Context, log engine.Records, committed Position) error
	Attach(j journal.Journal)
	KnowSegments(closed func(seq uint64) (engine.Segment, bool))
}

var metadataCache = pebble.NewCache(8 << 20)

// A crowd is a world whose sites have engines, with log and metadata on one disk each. It has a
// client.
type crowd struct {
	*world
	random  *mrand.Rand
	engines map[string]*engine.Engine
	model   *memvol.Volume
	seq     uint32
	past    past
}

var jointID = volume.ID{0xaa, 1}

func newCrowd(t *testing.T, seed uint64) *crowd {
	c := &crowd{world: newWorld(t, "abc", 2), random: mrand.New(mrand.NewPCG(seed, 41)), engines: map[string]*engine.Engine{},
		model: memvol.New(jointID), past: past{objects: &sharedObjects{all: map[string][]byte{}},
			made: map[uint64]*checkpoint.Manifest{}, unused: map[uint64][]uint64{}, moving: newMoving()}}
	if seed%3 == 0 {
		c.policy.Want = 3
	}
	for _, s := range c.sites {
		s.disk = crashfs.NewDisk(crashfs.Config{Gateway: fmt.Sprintf("%s-%d", s.name, seed), Limit: 64 << 20,
			Rand: mrand.New(mrand.NewPCG(seed, uint64(s.name[0])))})
		s.opening = func(dir cachepool.Dir, cfg *log.Config) volumeMachine {
			e := c.open(s, dir)
			cfg.KnownApplied, cfg.Moved = e.Applied(), e.Moved
			c.engines[s.name] = e
			sources := cfg.Sources
			cfg.Sources = func() []log.Source {
				all := append([]log.Source{StoreSource{s.store, s.name}}, sources()...)
				for _, o := range c.sites { // a gateway also answers with what only its store has
					if o != s {
						all = append(all, StoreSource{o.store, o.name})
					}
				}
				return all
			}
			return e
		}
	}
	t.Cleanup(func() {
		for _, s := range c.sites {
			c.down(s, false)
		}
	})
	return c
}

// open opens a site's metadata.
func (c *crowd) open(s *site, dir cachepool.Dir) *engine.Engine {
	c.Helper()
	for {
		e, err := engine.Open(engine.Config{ID: jointID, FS: s.disk.FS(), Dir: filepath.Join(dir.Path(), "meta"), DataKey: testKey,
			Rand: rand.Reader, Now: time.Now, Clock: clockwork.NewRealClock(), Logger: slog.New(slog.DiscardHandler),
			Pebble: metadataCache, RootMode: 0o777})
		if errors.Is(err, failstop.ErrUnderWay) {
			continue // a goroutine of before the crash is about to end
		}
		c.must(err)
		return e
	}
}

// down ends a site's process, with its power or without.
func (c *crowd) down(s *site, power bool) {
	if s.node == nil {
		return
	}
	s.kill(power)
	_ = c.engines[s.name].Close() // its disk is gone
	delete(c.engines, s.name)
}

// home returns the site that serves, or nil.
func (c *crowd) home() *site {
	for _, s := range c.sites {
		if s.node == nil {
			continue
		}
		if _, ok := s.replica.Leading(); ok && s.replica.MayServe() == nil {
			return s
		}
	}
	return nil
}

// clientChange is a change of the client's, on any volume.
type clientChange struct {
	kind      int
	name, to  string
	off, size uint64
	data      []byte
	id        volume.OpID
}

type changer interface {
	volume.Reader
	volume.Changer
}

func (k clientChange) do(ctx context.Context, v changer) error {
	r := volume.Request{ID: k.id}
	if k.kind < 2 {
		args := volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded}
		if k.kind == 1 {
			args.Type = volume.Directory
		}
		_, err := v.Create(ctx, r, volume.Root, k.name, args)
		return err
	}
	switch k.kind {
	case 2:
		_, err := v.Remove(ctx, r, volume.Root, k.name)
		return err
	case 3:
		_, _, err := v.Rename(ctx, r, volume.Root, k.name, volume.Root, k.to)
		return err
	}
	a, err := v.Lookup(ctx, volume.Request{}, volume.Root, k.name)
	if err != nil {
		return err
	}
	switch k.kind {
	case 4:
		_, err = v.SetAttr(ctx, r, a.Handle, volume.SetAttr{Size: &k.size})
	case 5:
		_, err = v.Punch(ctx, r, a.Handle, k.off, k.size)
	default:
		_, err = v.Write(ctx, r, a.Handle, k.off, k.data, true)
	}
	return err
}

func (c *crowd) randomChange() clientChange {
	r := c.random
	names := []string{"a", "b", "c", "d"}
	c.seq++
	k := clientChange{kind: r.IntN(16), name: names[r.IntN(4)], to: names[r.IntN(4)], off: r.Uint64N(5000), size: r.Uint64N(5000),
		data: make([]byte, 1+r.IntN(3000)), id: volume.OpID{Slot: "client", Seq: c.seq}}
	for i := range k.data {
		k.data[i] = byte(r.Uint32()) // else blocks are so small that nothing comes back
	}
	return k
}

// look describes a volume as a client sees it.
func look(v volume.Reader) (string, error) {
	ctx := context.Background()
	var b strings.Builder
	entries, _, err := v.ReadDir(ctx, volume.Request{}, volume.Root, 0, 100)
	if err != nil {
		return "", err
	}
	lines := map[string]string{}
	for _, e := range entries {
		p := make([]byte, e.Attr.Size)
		if e.Attr.Type == volume.Regular {
			if _, _, err := v.Read(ctx, volume.Request{}, e.Attr.Handle, 0, p); err != nil {
				return "", fmt.Errorf("read %s: %w", e.Name, err)
			}
		} else {
			p = nil
		}
		lines[e.Name] = fmt.Sprintf("type %d nlink %d used %d: %x\n", e.Attr.Type, e.Attr.Nlink, e.Attr.Used, p)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		if l := lines[name]; l != "" {
			b.WriteString(name + " " + l)
		}
	}
	return b.String(), nil
}

// outcomeOf returns which outcome err is, for a comparison, and whether the change may be repeated.
func outcomeOf(err error) (what string, again bool) {
	for _, o := range []error{volume.ErrDelay, volume.ErrUnknown, volume.ErrIO} {
		if errors.Is(err, o) {
			return "", true
		}
	}
	for _, o := range []error{volume.ErrNotExist, volume.ErrExist, volume.ErrIsDir, volume.ErrNotDir, volume.ErrNotEmpty,
		volume.ErrInvalid} {
		if errors.Is(err, o) {
			return o.Error(), false
		}
	}
	return fmt.Sprint(err), false
}

// change has the client make a change, and repeat it until its outcome is known. Meanwhile sites
// fail.
func (c *crowd) change(k clientChange) {
	c.Helper()
	want, _ := outcomeOf(k.do(context.Background(), c.model))
	trouble := 2 // at most
	for try := 0; ; try++ {
		if try > 300 {
			c.Fatalf("change %+v has no outcome", k.id)
		}
		var home *site
		c.until("there is a home", func() bool {
			if c.random.IntN(30) == 0 {
				c.repair()
			}
			home = c.home()
			return home != nil
		})
		ctx, cancel := context.WithCancel(context.Background())
		result := make(chan error, 1)
		e := c.engines[home.name]
		go func() { result <- k.do(ctx, e) }()
		if trouble > 0 && c.random.IntN(8) == 0 {
			trouble--
			c.trouble()
		}
		var err error
		steps := 0
		c.until("the change ends", func() bool {
			steps++
			if steps == 50 {
				cancel() // and asks again
			}
			if steps%100 == 0 {
				c.repair()
			}
			select {
			case err = <-result:
				return true
			default:
				return false
			}
		})
		cancel()
		got, again := outcomeOf(err)
		if !again {
			if got != want {
				c.Fatalf("change %+v at %s: %v, reference: %s", k.id, home.name, err, want)
			}
			return
		}
	}
}

// trouble ends a site's process, with or without its power, cuts it off, or has it lose what it can
// get elsewhere.
func (c *crowd) trouble() {
	s := c.sites[c.random.IntN(len(c.sites))]
	if s.node == nil {
		return
	}
	switch c.random.IntN(5) {
	case 0, 1:
		c.down(s, true)
	case 2:
		c.down(s, false)
	case 3:
		o := c.sites[c.random.IntN(len(c.sites))]
		c.net.cut(s.name, o.name)
	case 4:
		s.replica.Shed()
	}
}

// repair starts what is down.
func (c *crowd) repair() {
	c.net.heal()
	for _, s := range c.sites {
		if s.node == nil && s != c.past.away {
			s.start()
		}
	}
}

// still is the Journal of a copy whose process only looks.
type still struct{ *log.Log }

func (still) Append(context.Context, *segment.Record) (p Position, err error) {
	return p, journal.ErrNotHome
}
func (still) Ready(context.Context) error                   { return nil }
func (still) WaitCommitted(context.Context, Position) error { return nil }
func (still) WaitKnown(context.Context, Position) error     { return nil }
func (still) WaitRoom(context.Context) error                { return journal.ErrFull }
func (still) MayServe() error                               { return nil }
func (still) Bounded() (p Position, ok bool)                { return p, false }

// inspect opens a copy whose processes have ended, and compares it with the model.
func (c *crowd) inspect(s *site) {
	c.Helper()
	pool, err := s.disk.Open()
	c.must(err)
	dir, err := pool.Volume(testVolume)
	c.must(err)
	e := c.open(s, dir)
	l, err := log.Open(log.Config{Dir: dir, Room: pool.Room(), Volume: segment.VolumeID(jointID), DataKey: testKey, Keys: jointKeys,
		Rand: rand.Reader,
		Now:  time.Now, SegmentSize: segmentSize, KnownApplied: e.Applied(), Moved: e.Moved,
		Sources: func() []log.Source { return []log.Source{StoreSource{s.store, s.name}} }})
	c.must(err)
	c.must(l.Recovered().Doubt)
	c.must(e.Replay(context.Background(), l, l.End()))
	c.must(e.WaitApplied(context.Background(), l.End()))
	e.Attach(still{l})
	got, err := look(e)
	c.must(err)
	want, err := look(c.model)
	c.must(err)
	if got != want {
		c.Errorf("the copy at %s has\n%s\nreference:\n%s", s.name, got, want)
	}
	c.must(errors.Join(e.Close(), l.Close(), pool.Close()))
}

// knowsAll reports whether a site has applied all records of its log. Before, it may not know of
// the last pack.
func (c *crowd) knowsAll(s *site) bool {
	end := s.log.End()
	if before, ok := s.log.Segment(end.Seq - 1); ok && end.Off <= segment.HeaderSize { // no record follows yet
		end = Position{Seq: before.Seq, Off: before.Len}
	}
	return !c.engines[s.name].Applied().Less(end)
}

// TestJointCrashes has a client change a volume with three copies, whose sites lose their power,
// their processes and their network meanwhile. Each change is made once, and in the end each copy,
// log and metadata, is what the changes make.
func TestJointCrashes(t *testing.T) {
	if raced {
		t.Skip("a test of disks that fail runs without the race detector")
	}
	const seeds = 60
	var compared, dropped, anew, made, fetched, again, moved, gone, cut, resealed atomic.Int64
	run := func(t *testing.T, seed uint64) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			defer func() {
				if t.Failed() {
					t.Logf("again: go test ./replica -run '^TestJointCrashes$' -seed %d", seed)
				}
			}()
			c := newCrowd(t, seed)
			c.up("a", "b", "c")
			for i := range 25 {
				if i == 0 {
					c.seq++
					c.change(clientChange{name: "a", id: volume.OpID{Slot: "client", Seq: c.seq}})
				}
				c.change(c.randomChange())
				if c.random.IntN(2) == 0 || c.past.away != nil {
					c.tend()
				}
				for n := 0; seed%3 == 1 && n < 3; n++ { // much is packed, and packed again
					c.tend()
				}
				switch {
				case i == 4 && seed%2 == 0:
					c.leave()
				case i == 18:
					c.past.away = nil
				}
				c.beginAnew()
			}
			c.repair()
			c.past.moving.calm = true
			c.until("all have the same log", func() bool {
				c.beginAnew()
				c.repair()
				home := c.home()
				for _, s := range c.sites {
					if home == nil || s.log.End() != home.log.End() || s.log.Durable() != s.log.End() {
						return false
					}
					if !c.knowsAll(s) {
						return false
					}
					if c.drop(s); s.log.AbsentBytes() > 0 {
						return false
					}
				}
				return true
			})
			for _, s := range c.sites {
				c.down(s, c.random.IntN(2) == 0)
			}
			for _, s := range c.sites {
				c.inspect(s)
			}
			compared.Add(int64(c.past.compared))
			dropped.Add(int64(c.past.dropped))
			anew.Add(int64(c.past.anew))
			m := &c.past.moving
			made.Add(int64(m.made))
			fetched.Add(int64(m.fetched))
			again.Add(int64(m.again))
			moved.Add(int64(m.moved))
			gone.Add(int64(m.gone))
			cut.Add(int64(m.cut))
			resealed.Add(int64(m.anew))
		})
	}
	switch {
	case *oneSeed != 0:
		run(t, *oneSeed)
	case os.Getenv("WEIR_SOAK") != "":
		for end := time.Now().Add(*soak); time.Now().Before(end) && !t.Failed(); {
			first := uint64(time.Now().UnixNano())
			t.Run("round", func(t *testing.T) {
				for k := range uint64(seeds) {
					run(t, first+k)
				}
			})
		}
	default:
		t.Run("all", func(t *testing.T) {
			for seed := range uint64(seeds) {
				run(t, seed+1)
			}
		})
		t.Logf("%d checkpoints were made that another copy had made, %d segments dropped, %d copies began anew", compared.Load(),
			dropped.Load(), anew.Load())
		t.Logf("%d packs were made, %d of them fetched, %d of packs, %d segments moved, %d packs went, %d blocks were cut",
			made.Load(), fetched.Load(), again.Load(), moved.Load(), gone.Load(), cut.Load())
		if !t.Failed() && min(compared.Load(), dropped.Load(), anew.Load(), made.Load(), moved.Load(), cut.Load(),
			resealed.Load()) == 0 {
			t.Error("too little happens")
		}
	}
}
