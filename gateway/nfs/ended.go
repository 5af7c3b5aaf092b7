// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"errors"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/state"
	"github.com/weir-storage/weir/volume"
)

// releaseRetry is how long the server waits before it tries again to release locks
// that a volume could not release.
const releaseRetry = time.Second

// wholeFile is the range of all locks of a file.
func wholeFile(o volume.LockOwner) volume.Lock { return volume.Lock{Owner: o, End: ^uint64(0)} }

// ended releases what ended without an operation. One volume that does not answer holds no other
// one's locks.
func (s *Server) ended(all []state.Ended) {
	of := map[volume.ID][]state.Ended{}
	for _, e := range all {
		of[e.Volume.ID()] = append(of[e.Volume.ID()], e)
	}
	for _, one := range of {
		s.background(func() { s.release(one...) })
	}
}

// release does on volumes what opens that ended require. If something fails, it tries
// again in the background until it succeeds: a lock that is never released blocks
// others for ever.
func (s *Server) release(ended ...state.Ended) {
	if left := s.tryRelease(ended); len(left) > 0 {
		s.background(func() { s.retryRelease(left) })
	}
}

// releaseAll is release, and waits for its end. It returns false if the server ended
// before.
func (s *Server) releaseAll(ended []state.Ended) bool { return s.retryRelease(s.tryRelease(ended)) }

func (s *Server) retryRelease(left []state.Ended) bool {
	for len(left) > 0 {
		select {
		case <-s.ctx.Done():
			return false
		case <-s.cfg.Clock.After(releaseRetry):
			left = s.tryRelease(left)
		}
	}
	return true
}

// tryRelease returns what remains to be done.
func (s *Server) tryRelease(ended []state.Ended) (left []state.Ended) {
	for _, e := range ended {
		for len(e.Owners) > 0 {
			err := e.Volume.Unlock(s.ctx, volume.Request{}, e.Handle, wholeFile(e.Owners[0]))
			if err != nil && !errors.Is(err, volume.ErrStale) {
				s.cfg.Log.Warn("locks of a closed file are not released yet", "volume", e.Volume.ID(), "inode", e.Handle.Ino, "err", err)
				break
			}
			s.table.Released(state.FileKey{Volume: e.Volume.ID(), Handle: e.Handle}, e.Owners[0])
			e.Owners = e.Owners[1:]
		}
		if len(e.Owners) > 0 {
			left = append(left, e)
		} else if e.Release {
			e.Volume.Release(e.Handle)
		}
	}
	return left
}

// forget calls Volume.Forget for OpIDs that cannot be repeated any more.
func (s *Server) forget(f state.Forgotten) {
	vols := map[volume.ID]volume.Volume{}
	for _, v := range f.Volumes {
		vols[v.ID()] = v
	}
	if addr, err := parseAddr(f.Address); f.Loaded && err == nil {
		for _, e := range s.cfg.Exports.Exports(addr) {
			if v, _, err := s.cfg.Exports.Open(addr, e.ID); err == nil {
				vols[e.ID] = v
			}
		}
	}
	for id, v := range vols {
		if err := v.Forget(s.ctx, f.Prefix); err != nil {
			s.cfg.Log.Debug("forget recorded results of an ended session", "volume", id, "err", err)
		}
	}
}
