// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/cachepool/readcache"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica/protocol"
)

// Uploads is the part of a site's store that uploading sealed segments needs. Put of a name that
// exists succeeds.
type Uploads interface {
	Put(ctx context.Context, name string, size int64, body io.ReadSeeker) error
}

// uploader is the state of a replica's uploads. Replica.mu guards it.
type uploader struct {
	running bool
	commit  uint64 // segment of the commit position when pending was last asked for it
	retry   clockwork.Timer
	seen    [2]Position // commit position and end of the log at the last tick
	idle    int         // ticks since they moved
}

// lookAgain is after how many ticks an idle log is looked at for segments that are to be uploaded,
// although nothing moved: one may have been healed, say.
const lookAgain = 32

// due reports whether this tick is to look for segments to upload.
func (u *uploader) due(commit, end Position) bool {
	now := [2]Position{commit, end}
	if u.idle++; u.seen != now || u.idle >= lookAgain {
		u.seen, u.idle = now, 0
		return true
	}
	return false
}

// isFull reports that the log is unchanged, and goes on when there is room.
func isFull(err error) bool { return errors.Is(err, log.ErrFull) && !errors.Is(err, log.ErrPoisoned) }

// upload sends sealed and committed segments to the site's store, in the background.
func (r *Replica) upload() {
	if r.cfg.Store == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.uploader.running || r.uploader.retry != nil || len(r.pending(0, 1)) == 0 {
		return
	}
	r.uploader.running = true
	r.work.Go(r.uploads)
}

// pending returns up to limit segments after segment number after that are to be uploaded: sealed,
// with all records committed (protocol-9). The caller holds r.mu.
func (r *Replica) pending(after uint64, limit int) []log.SegmentInfo {
	return r.cfg.Log.Unstored(after, r.core.Commit(), limit)
}

// UploadQueue returns how many bytes of sealed and committed segments are not in the store yet.
func (r *Replica) UploadQueue() (bytes uint64) {
	if r.cfg.Store == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cfg.Log.UnstoredBytes(r.core.Commit())
}

func (r *Replica) uploads() {
	var after uint64
	var left bool // a damaged segment was skipped, so that the others do not wait for it
	for {
		r.mu.Lock()
		todo := r.pending(after, 4)
		if r.closed || len(todo) == 0 && !left {
			r.uploader.running = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		if len(todo) == 0 {
			r.retryUpload()
			return
		}
		for _, s := range todo {
			err := r.uploadOne(s)
			r.node.cfg.Meter.Uploaded(s.Len, err)
			r.stuck.uploaded(err)
			if err != nil && r.ctx.Err() == nil {
				r.cfg.Logger.Warn("segment is not in the store yet; trying again", "segment", s.Name, "error", err)
			}
			switch {
			case err == nil:
			case errors.Is(err, ErrDamaged):
				left = true
			default:
				r.retryUpload()
				return
			}
			after = s.Seq
		}
	}
}

// retryUpload starts the uploader again after a while.
func (r *Replica) retryUpload() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uploader.running = false
	if r.closed || r.uploader.retry != nil {
		return
	}
	r.uploader.retry = r.node.cfg.Timers.AfterFunc(2*time.Second, func() {
		r.mu.Lock()
		r.uploader.retry = nil
		r.mu.Unlock()
		r.upload()
	})
}

// ErrDamaged reports that a segment's file does not match the hash in its name, and that no good
// copy could be fetched. Nothing was sent to the store.
var ErrDamaged = errors.New("segment is damaged here")

func (r *Replica) uploadOne(s log.SegmentInfo) error {
	ctx, cancel := context.WithTimeout(r.ctx, 10*time.Minute)
	defer cancel()
	// The store never replaces an object, so a damaged segment would stay there for ever.
	if err := r.cfg.Log.Heal(ctx, s.Seq); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	body := io.NewSectionReader(segmentReader{r.cfg.Log, s.Seq}, 0, int64(s.Len))
	if err := r.cfg.Store.Put(ctx, s.Name, int64(s.Len), body); err != nil {
		return err
	}
	if err := r.cfg.Log.MarkStored(s.Name); err != nil {
		return err
	}
	r.cfg.Logger.Debug("segment is in the store", "segment", s.Name, "bytes", s.Len)
	r.mu.Lock()
	r.signal()
	r.mu.Unlock()
	r.node.cfg.Evictor.Stored(r.cfg.Volume)
	return nil
}

// FetchPast gets the segments of the log's past that this copy lacks, because it began with a
// checkpoint. Those that stored says the site's store has are only noted. It returns when it has
// all, or with what keeps it from some; then it can be called again.
func (r *Replica) FetchPast(ctx context.Context, stored func(name string, size uint64) bool) error {
	defer r.post(protocol.Appended{})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go r.node.every(ctx, time.Second, func() { r.post(protocol.Appended{}) }) // one segment may take long
	var errs []error
	for after := uint64(0); ctx.Err() == nil; {
		todo := r.cfg.Log.Absent(after, 64)
		if len(todo) == 0 {
			return errors.Join(errs...)
		}
		var names []string
		for _, s := range todo {
			after = s.Seq
			if stored(s.Name, s.Len) {
				names = append(names, s.Name)
				continue
			}
			err := r.cfg.Log.Heal(ctx, s.Seq)
			if isFull(err) && r.makeRoom(int64(s.Len)) > 0 {
				err = r.cfg.Log.Heal(ctx, s.Seq)
			}
			if isFull(err) {
				return err // the store takes some first
			}
			if err != nil {
				errs = append(errs, err)
			}
			r.post(protocol.Appended{})
			r.upload()
		}
		if err := r.cfg.Log.MarkStored(names...); err != nil {
			return err
		}
		r.post(protocol.Appended{})
	}
	return ctx.Err()
}

// Drop drops segments that are condemned, see log.Log.
func (r *Replica) Drop(seqs ...uint64) error {
	defer r.post(protocol.Appended{})
	return r.cfg.Log.Drop(seqs...)
}

// segmentReader reads a local segment's file.
type segmentReader struct {
	log *log.Log
	seq uint64
}

func (s segmentReader) ReadAt(p []byte, off int64) (int, error) {
	return s.log.ReadSegmentFile(s.seq, p, off)
}

// Evictor frees room on the gateway's pool: cachepool/readcache. Its methods are called without
// locks.
type Evictor interface {
	// MakeRoom frees about n bytes for a volume's log, and returns how many. It calls Evictable and
	// Evict of replicas.
	MakeRoom(volume string, n int64) (freed int64)
	// Stored is called when another segment of a volume is in the store.
	Stored(volume string)
}

func (r *Replica) makeRoom(n int64) (freed int64) {
	return r.node.cfg.Evictor.MakeRoom(r.cfg.Volume, n)
}

var _ readcache.Segments = (*Replica)(nil)

// Evictable implements readcache.Segments: the files of segments that are in the store, and
// applied.
func (r *Replica) Evictable() (files []readcache.File, settled bool) {
	return r.cfg.Log.Evictable(r.cfg.Machine.Applied())
}

// Evict implements readcache.Segments.
func (r *Replica) Evict(seq uint64, before func()) (freed int64) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return 0
	}
	r.work.Add(1) // Close waits
	r.mu.Unlock()
	defer r.work.Done()
	s, ok := r.cfg.Log.Segment(seq)
	end := Position{Seq: seq, Off: s.Len}
	if !ok || !s.Uploaded || !s.Local || r.cfg.Machine.Applied().Less(end) {
		return 0 // it went, or the log changed
	}
	// After a crash the machine replays what is not durable in its state. The log must have it
	// here: the store may be away.
	kept, err := r.cfg.Machine.Persist(end)
	if err != nil || kept.Less(end) {
		r.cfg.Logger.Warn("segment is not evicted: the metadata are not durable so far", "segment", seq, "error", err)
		return 0
	}
	before()
	if err := r.cfg.Log.Evict(seq); err != nil {
		r.cfg.Logger.Warn("segment is not evicted", "segment", seq, "error", err)
		return 0
	}
	return int64(s.Len)
}

// ReadSegmentFile implements readcache.Segments.
func (r *Replica) ReadSegmentFile(seq uint64, p []byte, off int64) (int, error) {
	return r.cfg.Log.ReadSegmentFile(seq, p, off)
}

// Shed evicts what the store has of a copy that is to be closed for long, so that it does not keep
// the pool from others, and returns how many bytes it freed.
func (r *Replica) Shed() (freed int64) {
	files, _ := r.Evictable()
	for _, f := range files {
		freed += r.Evict(f.Seq, func() {})
	}
	return freed
}

// WaitRoom implements journal.Journal. It evicts segments. If none can be evicted, it has the last
// one sealed and waits for an upload.
func (r *Replica) WaitRoom(ctx context.Context) error {
	r.mu.Lock()
	gone, changed := !r.accepts || r.paused || r.closed, r.changed
	r.mu.Unlock()
	if gone || r.makeRoom(segment.MaxSize) > 0 {
		return nil
	}
	r.stuck.is(nil, r.cfg.Logger)
	if r.cfg.Store == nil {
		return journal.ErrFull
	}
	r.Roll()
	select {
	case <-changed:
		return nil
	case <-r.node.cfg.Timers.After(250 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", journal.ErrFull, ctx.Err())
	}
}

// stuck records why writers wait for room. The zero value means that they do not wait.
type stuck struct {
	mu     sync.Mutex
	wanted error // the pool's error when a record last found no room
	full   error // the pool's error
	upload error // error of the last upload; nil: it succeeded
}

// wants records that a record found no room, before anybody tried to make some.
func (s *stuck) wants(full error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = full
}

// is records that there is no room, and none can be made. full is nil if wants said why.
func (s *stuck) is(full error, logger *slog.Logger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if full == nil {
		full = s.wanted
	}
	if full == nil {
		return
	}
	if s.full == nil {
		logger.Warn("what is written here, or follows, waits for room on the pool", "error", full, "store", s.upload)
	}
	s.full = full
}

// over records that a write found room.
func (s *stuck) over(logger *slog.Logger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full != nil {
		logger.Info("there is room on the pool again")
	}
	s.full = nil
}

// uploaded records how an upload ended.
func (s *stuck) uploaded(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upload = err
}

// Waiting returns why writers at the home wait for room, or why a follower takes nothing in, and
// what to do about it; "" if there is room.
func (r *Replica) Waiting() string {
	s := &r.stuck
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.full == nil:
		return ""
	case s.upload != nil:
		return fmt.Sprintf("%v; what is on it can not leave: the store does not take it: %v", s.full, s.upload)
	case r.cfg.Store == nil:
		return fmt.Sprintf("%v; what is on it can not leave: the site has no store: give it one", s.full)
	}
	return s.full.Error()
}
