// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/cachepool/failstop"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	storemem "github.com/weir-storage/weir/store/memory"
)

// A joint is one gateway's engine, log and metadata on one disk, which loses what was not synced of
// all of them together. It is home, and the only member: what is fsynced here is committed.
type joint struct {
	disk    *crashfs.Disk
	store   *storemem.Store // of the site
	lies    lies            // of that
	others  []log.Source    // besides the store
	shown   atomic.Int64    // records that the log has, since it was made
	epoch   uint64
	segment int64 // size

	pool   cachepool.Pool
	log    *log.Log
	engine *Engine
	failed atomic.Bool // Config.Failed was called
}

// newJoint returns a gateway on an empty disk, which is not open.
func newJoint(name string, seed uint64, limit int64) *joint {
	name = strings.NewReplacer("/", "-", " ", "-").Replace(name) // one for each disk of this process, as it is in paths
	return &joint{store: storemem.New(), segment: 6000,
		disk: crashfs.NewDisk(crashfs.Config{Gateway: name, Limit: limit, Ahead: 1 << 10, Rand: mathrand.New(mathrand.NewPCG(seed, 22))})}
}

// jointCache is shared by all metadata of these tests, so that they take no more memory.
var jointCache = pebble.NewCache(8 << 20)

// jointJournal is the Journal of a joint. Only who waits makes it fsync.
type jointJournal struct {
	logJournal
	j *joint
}

func (j jointJournal) Append(_ context.Context, rec *segment.Record) (segment.Position, error) {
	rec.Epoch = j.j.epoch
	end, err := j.Log.Append(rec)
	switch {
	case errors.Is(err, cachepool.ErrFull):
		return end, errors.Join(journal.ErrFull, err)
	case errors.Is(err, log.ErrPoisoned): // the record may be in the log when that is opened again
		end = j.Log.End()
		return segment.Position{Seq: end.Seq, Off: end.Off + 1}, nil
	case err != nil:
		return end, errors.Join(journal.ErrNotHome, err)
	}
	return end, nil
}

// Show counts the records that the log has.
func (j *joint) Show(rec *segment.Record, end segment.Position) {
	j.shown.Add(1)
	j.engine.Show(rec, end)
}

// lies is what a store does to who reads: nothing, or something wrong.
type lies int

const (
	honest  lies = iota
	away         // it fails
	empty        // it says that it has nothing
	zeros        // it returns zeros
	damaged      // it returns bytes of which one is wrong
	allLies      // how many there are
)

// jointSource reads segments from the store.
type jointSource struct{ j *joint }

func (s jointSource) ReadSegment(ctx context.Context, name string, off int64, p []byte) error {
	switch s.j.lies {
	case away:
		return errors.New("the store is away")
	case empty:
		return fmt.Errorf("no segment %s", name)
	}
	if err := s.j.store.GetRange(ctx, name, off, p); err != nil {
		return err
	}
	switch {
	case s.j.lies == zeros:
		clear(p)
	case s.j.lies == damaged && len(p) > 0:
		p[len(p)/2] ^= 0x40
	}
	return nil
}

func (s jointSource) String() string { return "store" }

// config is that of the engine, over a disk that is open.
func (j *joint) config(dir cachepool.Dir) Config {
	return Config{
		ID: testID, FS: j.disk.FS(), Dir: filepath.Join(dir.Path(), "meta"), DataKey: testKey, Rand: rand.Reader,
		Now: time.Now, Clock: clockwork.NewRealClock(), Logger: slog.New(slog.DiscardHandler), RootMode: 0o777, Pebble: jointCache,
		Failed: func(error) { j.failed.Store(true) },
	}
}

// openEngine opens the metadata, when all changes have ended that an earlier process made.
func (j *joint) openEngine(cfg Config) (err error) {
	waitFor(func() bool {
		j.engine, err = Open(cfg)
		return !errors.Is(err, failstop.ErrUnderWay)
	})
	return err
}

// open starts a process on the disk, and recovers log and metadata, without the store: what
// recovery needs must be on the pool. A follower has all that is in its log, and shows what is
// committed.
func (j *joint) open() (err error) {
	j.failed.Store(false)
	j.log, j.engine = nil, nil
	if j.pool, err = j.disk.Open(); err != nil {
		return err
	}
	dir, err := j.pool.Volume(testID.String())
	if err != nil {
		return err
	}
	if err := j.openEngine(j.config(dir)); err != nil {
		return fmt.Errorf("open metadata: %w", err)
	}
	j.log, err = log.Open(log.Config{
		Dir: dir, Room: j.pool.Room(), Volume: segment.VolumeID(testID), DataKey: testKey, Sources: j.sources,
		Rand: rand.Reader, Now: time.Now, SegmentSize: j.segment, SyncBytes: 1 << 40, TailBytes: 1, KnownApplied: j.engine.Applied(),
	})
	if err != nil {
		return err
	}
	return j.recover()
}

func (j *joint) sources() []log.Source {
	return append([]log.Source{jointSource{j}}, j.others...)
}

func (j *joint) recover() error {
	if err := j.log.Recovered().Doubt; err != nil {
		return fmt.Errorf("doubt: %w", err)
	}
	j.log.ShowTo(j)
	was := j.lies
	j.lies = away
	err := j.engine.Replay(context.Background(), j.log, j.log.Recovered().Committed)
	j.lies = was
	if err != nil {
		return fmt.Errorf("replay from %v without the store: %w", j.engine.Applied(), err)
	}
	for _, e := range j.log.Epochs() {
		j.epoch = max(j.epoch, e.Epoch)
	}
	j.engine.Attach(jointJournal{logJournal{j.log}, j})
	return nil
}

// settle has all that the log has committed, and applied.
func (j *joint) settle() error {
	j.epoch++
	if _, err := j.log.BeginEpoch(j.epoch); err != nil {
		return fmt.Errorf("begin epoch: %w", err)
	}
	end := j.log.End()
	if err := j.log.Wait(context.Background(), end); err != nil {
		return err
	}
	j.log.NoteCommitted(end)
	j.engine.Committed(end)
	return j.engine.WaitApplied(context.Background(), j.engine.lastEnd())
}

// lead makes the gateway home, after settle.
func (j *joint) lead() error {
	log, engine := j.log, j.engine
	log.OnDurable(func(pos segment.Position, err error) {
		if err == nil {
			log.NoteCommitted(pos)
			engine.Committed(pos)
		}
	})
	return j.engine.Lead(context.Background(), j.epoch)
}

// died reports that the process can do no more: the power went, or the disk failed.
func (j *joint) died() bool {
	return j.disk.Crashed() || j.failed.Load() || errors.Is(j.log.Wait(context.Background(), segment.Position{}), log.ErrPoisoned)
}

// close ends the process in order, if the disk still allows it.
func (j *joint) close() error {
	return errors.Join(j.log.Close(), j.engine.Close(), j.pool.Close())
}

// end closes what a crash left of a process.
func (j *joint) end() {
	if j.log != nil {
		_ = j.log.Close() // the disk is gone
	}
	if j.engine != nil {
		_ = j.engine.Close() // as above
	}
	j.log, j.engine = nil, nil
}

// upload puts closed segments into the store, as package replica does.
func (j *joint) upload() error {
	for _, s := range j.log.Segments() {
		if s.Uploaded || !s.Local {
			continue
		}
		b := make([]byte, s.Len)
		if _, err := j.log.ReadSegmentFile(s.Seq, b, 0); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err := j.store.Put(context.Background(), s.Name, int64(len(b)), bytes.NewReader(b)); err != nil {
			return err
		}
		if err := j.log.MarkStored(s.Name); err != nil {
			return err
		}
	}
	return nil
}

// evict evicts uploaded segments, after what the metadata need of them is durable, as package
// replica does.
func (j *joint) evict(r *mathrand.Rand) error {
	for _, s := range j.log.Segments() {
		end := segment.Position{Seq: s.Seq, Off: s.Len}
		if !s.Uploaded || !s.Local || j.engine.Applied().Less(end) || r.IntN(2) == 0 {
			continue
		}
		kept, err := j.engine.Persist(end)
		if err != nil {
			return err
		}
		if kept.Less(end) {
			return fmt.Errorf("metadata are kept up to %v after Persist(%v)", kept, end)
		}
		if err := j.log.Evict(s.Seq); err != nil {
			return err
		}
	}
	return nil
}

// records returns how many records the log has, and the metadata that they alone make.
func (j *joint) records() (n int, keys map[string]string, err error) {
	keys = map[string]string{}
	err = j.log.Replay(context.Background(), segment.Position{}, func(e log.Entry) error {
		if e.Record == nil {
			return nil
		}
		n++
		for _, op := range meta.Operations(e.Record) {
			switch op.Kind {
			case segment.Set:
				keys[string(op.Key)] = string(op.Value)
			case segment.Delete:
				delete(keys, string(op.Key))
			case segment.DeleteRange:
				for k := range keys {
					if k >= string(op.Key) && k < string(op.End) {
						delete(keys, k)
					}
				}
			default:
				return fmt.Errorf("record of an unknown kind of operation %d", op.Kind)
			}
		}
		return nil
	})
	return n, keys, err
}

// compare returns how the metadata differ from keys.
func (j *joint) compare(keys map[string]string) error {
	n := 0
	for p, err := range j.engine.store.Live(nil).Range([]byte{0}, []byte{0xff}) {
		if err != nil {
			return err
		}
		if meta.Table(p.Key[0]) == meta.Applied {
			continue
		}
		n++
		if want, ok := keys[string(p.Key)]; !ok || want != string(p.Value) {
			return fmt.Errorf("metadata have %x = %x, the log says %x, %t", p.Key, p.Value, want, ok)
		}
	}
	if n != len(keys) {
		return fmt.Errorf("metadata have %d keys, the log says %d", n, len(keys))
	}
	return health(j.engine, j.log)
}

// secrets notes what was encrypted under which salt or nonce of a file.
type secrets map[string][]byte

// look compares all files of a disk with what was seen before (protocol-16, cryptfs-1): one salt or
// nonce has one content, of which a file may have a part.
func (s secrets) look(d *crashfs.Disk, dir cachepool.Dir) error {
	fs := d.FS()
	for _, folder := range []string{dir.Path(), filepath.Join(dir.Path(), "meta")} {
		names, err := fs.List(folder)
		if err != nil {
			return err
		}
		for _, name := range names {
			f, err := fs.Open(filepath.Join(folder, name))
			if err != nil {
				return err
			}
			b, err := io.ReadAll(f)
			if err != nil {
				continue // the folder of the metadata
			}
			key := ""
			if h, err := segment.DecodeHeader(b); err == nil {
				key = string(h.Salt[:])
			} else if len(b) >= 32 && string(b[:8]) == "WEIRPBL1" {
				key = string(b[8:24])
			} else {
				continue
			}
			was := s[key]
			if n := min(len(b), len(was)); !bytes.Equal(b[:n], was[:n]) {
				return fmt.Errorf("%s has another content under a salt or nonce that was used before: %x", name, key)
			}
			if len(b) > len(was) {
				s[key] = b
			}
		}
	}
	return nil
}
