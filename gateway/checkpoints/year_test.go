// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/cachepool/readcache"
	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/protocol"
	"github.com/weir-storage/weir/store"
	storemem "github.com/weir-storage/weir/store/memory"
	"github.com/weir-storage/weir/volume"
)

var days = flag.Int("days", 0, "days that TestManySmallChanges simulates; 0: two, or 365 with WEIR_SOAK=1")

// every10s is how often a year's volume has a small fsync, and how often its gateway looks around.
const every10s = 10 * time.Second

// year is a volume at one site, on a clock that only the test moves. Engine, log, replica and
// Keeper are those of a gateway, as they are.
type year struct {
	*testing.T
	clock  *clockwork.FakeClock
	began  time.Time
	log    *log.Log
	engine *engine.Engine
	node   *replica.Node
	store  *storemem.Store
	keeper *Keeper
	copy   Copy
	rng    *rand.Rand
	logger *slog.Logger
	page   volume.Handle // of minutes
	step   int
}

// nowhere is a network without others.
type nowhere struct{}

func (nowhere) Send(string, []replica.Envelope) {}
func (nowhere) SendFrames(context.Context, string, replica.Envelope) error {
	return errors.New("there is nobody else")
}

func newYear(t *testing.T, lag time.Duration, pieces bool) *year {
	y := &year{T: t, clock: clockwork.NewFakeClock(), store: storemem.New(), rng: rand.New(rand.NewPCG(1, 2))}
	y.began = y.clock.Now()
	logger := slog.New(slog.DiscardHandler)
	if os.Getenv("WEIR_TEST_LOG") != "" {
		logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	id := uuid.MustParse("aa010000-0000-4000-8000-000000000007")
	pool, err := crashfs.NewDisk(crashfs.Config{Gateway: "ga", Limit: 64 << 30, Rand: y.rng}).Open()
	y.must(err)
	self := protocol.Member{Gateway: "ga", Site: "a", Incarnation: pool.Incarnation().String()}
	monotonic := func() time.Duration { return time.Hour + y.clock.Since(y.began) }
	y.node = replica.NewNode(replica.NodeConfig{Self: self, Promise: 15 * every10s, Heartbeat: every10s, Clock: monotonic, Timers: y.clock,
		Registry: memory.NewServer(7).Client(nil), Transport: nowhere{}, Evictor: readcache.New(readcache.Config{Room: pool.Room()}),
		Disks: []replica.Disk{{Probe: func() error { return nil }, Has: func(string) bool { return true }}}, Logger: logger})
	y.node.SetPeers([]protocol.Member{self})
	keys := segment.NewKeys(segment.DataKey{1})
	y.engine, err = engine.Open(engine.Config{ID: volume.ID(id), FS: vfs.NewMem(), Dir: "meta", DataKey: [32]byte{1}, Now: y.clock.Now,
		Clock: y.clock, Rand: crand.Reader, Logger: logger})
	y.must(err)
	dir, err := pool.Volume(id.String())
	y.must(err)
	y.log, err = log.Open(log.Config{Dir: dir, Room: pool.Room(), Volume: segment.VolumeID(id), DataKey: [32]byte{1}, Keys: keys,
		Rand: crand.Reader, Now: y.clock.Now, Logger: logger, Moved: y.engine.Moved,
		Sources: func() []log.Source { return []log.Source{replica.StoreSource{Store: y.store, Site: "a"}} }})
	y.must(err)
	y.engine.KnowSegments(ClosedOf(y.log))
	tails := func() time.Duration { return lag }
	if !pieces {
		tails = func() time.Duration { return 0 }
	}
	r := y.node.Open(replica.Config{Volume: id.String(), Log: y.log, Machine: y.engine,
		Policy: protocol.Policy{Want: 1, Sites: []string{"a"}, FirstHome: "a"}, DataKey: [32]byte{1}, Keys: keys,
		MaxLag: replica.MaxLag{Time: lag}, Tails: tails, Store: y.store, Aside: func(replica.Position) {}, Anew: func() {},
		Ended: func(err error) { t.Error("the replica ended: ", err) }, Logger: logger})
	y.engine.Attach(r)
	y.copy = Copy{UUID: id.String(), Engine: y.engine, Log: y.log, Replica: r, Keys: keys, Condemns: true,
		Use:   func(ctx context.Context) (context.Context, func(), error) { return ctx, func() {}, nil },
		Aside: func() bool { return false }, Tails: tails}
	y.logger = logger
	y.keeper = y.newKeeper()
	r.Start()
	t.Cleanup(func() {
		y.node.Close()
		if err := errors.Join(y.engine.Keep(nil), y.engine.Close(), y.log.Close()); err != nil {
			t.Error(err)
		}
	})
	y.until("the gateway is home", func() bool {
		y.tick()
		_, leads := r.Leading()
		return leads && r.MayServe() == nil
	})
	return y
}

func (y *year) must(err error) {
	y.Helper()
	if err != nil {
		y.Fatal(err)
	}
}

// until waits for what happens in the background.
func (y *year) until(what string, holds func() bool) {
	y.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Microsecond) {
		if time.Now().After(deadline) {
			y.Fatal("it does not come true that ", what)
		}
	}
}

func (y *year) newKeeper() *Keeper {
	return New(Config{Gateway: "ga", Site: "a", View: view.New("a", federation.KindVolume), Store: y.store, Timers: y.clock,
		Logger: y.logger})
}

// tick lets ten seconds pass.
func (y *year) tick() { y.clock.Advance(every10s) }

// keep has done what is due: what a Keeper's goroutines do one beside the other.
func (y *year) keep() {
	y.Helper()
	y.until("what ended is in the store", func() bool { return y.copy.Replica.UploadQueue() == 0 })
	all := []Copy{y.copy}
	y.keeper.tendAll(y.Context(), all)
	y.keeper.sweepAll(y.Context(), all)
	y.keeper.tailAll(y.Context(), all)
}

// known checks that what the last sweep knew is what the metadata say, and is not read again.
func (y *year) known() {
	y.Helper()
	var is *known
	var table engine.Packs
	var gone map[uint64]uint64
	y.until("nothing is applied meanwhile", func() bool {
		before := y.engine.SpaceTables()
		var err error
		is, err = y.keeper.know(y.copy)
		y.must(err)
		again, err := y.keeper.know(y.copy)
		y.must(err)
		table, err = y.engine.Packs()
		y.must(err)
		gone, err = y.engine.Condemned()
		y.must(err)
		still := y.engine.SpaceTables() == before
		if still && again != is {
			y.Fatal("it is read again although nothing changed")
		}
		return still
	})
	for seq, number := range gone {
		if s, ok := y.log.Segment(seq); ok && s.Dropped {
			if _, there := is.condemned[seq]; !there {
				continue
			}
		}
		if is.condemned[seq] != number {
			y.Fatalf("segment %d was condemned at checkpoint %d, and known is %d", seq, number, is.condemned[seq])
		}
	}
	for seq := range is.condemned {
		if _, there := gone[seq]; !there {
			y.Fatalf("segment %d is not condemned", seq)
		}
	}
	if !reflect.DeepEqual(is.packs, table) {
		y.Fatalf("known of packs is %+v, and it is %+v", is.packs, table)
	}
}

// stored returns how far the store has the log without a gap, by the names of what is there.
func (y *year) stored() (end log.Position) {
	y.Helper()
	last := y.log.End().Seq
	if _, closed := y.log.Segment(last); closed {
		last++
	}
	for _, s := range y.log.Unstored(0, y.log.End(), 1) {
		last = s.Seq
	}
	if last > 1 {
		s, _ := y.log.Segment(last - 1)
		end = log.Position{Seq: s.Seq, Off: s.Len}
	}
	var pieces []segment.Piece
	y.must(y.store.List(y.Context(), y.copy.UUID+segment.PieceFolder, func(i store.Info) error {
		_, p, err := segment.ParsePieceName(i.Name)
		if p.Seq == last {
			pieces = append(pieces, p)
		}
		return err
	}))
	slices.SortFunc(pieces, func(a, b segment.Piece) int { return cmp.Compare(a.From, b.From) })
	off := uint64(0)
	for _, p := range pieces {
		if p.From == off {
			off = p.To
		}
	}
	if off > 0 {
		end = log.Position{Seq: last, Off: off}
	}
	return end
}

// objects counts the objects of the store by kind.
func (y *year) objects() (all int, kinds map[string]int) {
	kinds = map[string]int{}
	y.must(y.store.List(y.Context(), y.copy.UUID+"/", func(i store.Info) error {
		all++
		kind := "segments"
		if parts := strings.Split(i.Name, "/"); len(parts) == 3 {
			kind = parts[1]
		}
		kinds[kind]++
		return nil
	}))
	return all, kinds
}

func (y *year) file(name string) volume.Handle {
	y.Helper()
	c, err := y.engine.Create(y.Context(), volume.Request{}, volume.Root, name,
		volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
	y.must(err)
	return c.Attr.Handle
}

// TestManySmallChanges: a volume with one small fsync every ten seconds, of files that are
// overwritten, extended and deleted, and with a snapshot each hour, has few objects in a store, and
// always what was acknowledged a minute ago.
func TestManySmallChanges(t *testing.T) {
	n := *days
	if n == 0 {
		if n = 2; os.Getenv("WEIR_SOAK") == "1" {
			n = 365
		}
	}
	y := newYear(t, time.Minute, true)
	page := make([]byte, 4096)
	pages := y.file("pages")
	journal := y.file("journal 0")
	var off uint64
	var ends []log.Position // of the log, after each of the last changes
	most, began := 0, time.Now()
	for i := range n * 8640 {
		binary.BigEndian.PutUint64(page, uint64(i))
		var err error
		if i%2 == 0 {
			_, err = y.engine.Write(t.Context(), volume.Request{}, pages, uint64(y.rng.IntN(64))*4096, page, true)
		} else {
			_, err = y.engine.Write(t.Context(), volume.Request{}, journal, off, page[:100], true)
			off += 100
		}
		y.must(err)
		if i%360 == 359 { // each hour another file, and a snapshot
			h := i / 360
			journal, off = y.file(fmt.Sprint("journal ", h+1)), 0
			_, err := y.engine.TakeSnapshot(t.Context(), volume.Request{}, fmt.Sprint("hour ", h))
			y.must(err)
			if h >= 24 {
				y.must(y.engine.DropSnapshot(t.Context(), volume.Request{}, fmt.Sprint("hour ", h-24)))
				_, err := y.engine.Remove(t.Context(), volume.Request{}, volume.Root, fmt.Sprint("journal ", h-24))
				y.must(err)
				_, err = y.engine.Reap(t.Context(), func(context.Context, []volume.Handle) ([]volume.Handle, error) { return nil, nil })
				y.must(err)
				_, err = y.engine.Clean(t.Context())
				y.must(err)
			}
		}
		y.tick()
		y.keep()
		ends = append(ends, y.log.End())
		if i%97 == 0 {
			y.known()
		}
		if i%7 == 0 && len(ends) > 6 {
			if before, stored := ends[len(ends)-6], y.stored(); stored.Less(before) {
				t.Fatalf("change %d: the store has the log up to %s, and it ended at %s a minute ago", i, stored, before)
			}
			ends = ends[len(ends)-6:]
		}
		if i%360 == 0 {
			all, kinds := y.objects()
			most = max(most, all)
			if i%8640 == 0 {
				table, err := y.engine.Packs()
				y.must(err)
				t.Logf("day %3d: %4d objects %v, %d segments in the log, %d packs made; %v", i/8640, all, kinds, y.log.End().Seq,
					len(table.All), time.Since(began).Round(time.Second))
			}
		}
	}
	all, kinds := y.objects()
	t.Logf("after %d days and %d changes: %d objects %v, at most %d; %v", n, n*8640, all, kinds, max(all, most), time.Since(began))
	if most > 250 {
		t.Errorf("the store had %d objects", most)
	}
}
