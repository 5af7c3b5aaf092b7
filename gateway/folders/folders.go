// SPDX-License-Identifier: Apache-2.0

// Package folders tells what a gateway's pools have of volumes: copies, outlines, and copies that
// were set aside, because their logs have changes that a forced takeover left out, or are in
// doubt. A person takes out of those what he needs. Meanwhile they are kept small.
package folders

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/pools"
	"github.com/weir-storage/weir/store"
)

// Config has what Folders need.
type Config struct {
	Pool   *pools.Pools
	FS     vfs.FS      // that the pools' directories are on
	Store  store.Store // of the site; nil: it has none
	Now    func() time.Time
	Logger *slog.Logger
}

// Folders are those of all pools. Its methods may be called from many goroutines.
type Folders struct {
	cfg Config

	mu   sync.Mutex
	shed map[string]time.Time // when folders last left what the store has
}

// New makes Folders of what is on the pools.
func New(cfg Config) *Folders { return &Folders{cfg: cfg, shed: map[string]time.Time{}} }

// Aside returns the folders of the pools that hold copies of a volume which were set aside.
func (s *Folders) Aside(id string) (out []string) {
	all, err := s.cfg.Pool.ListVolumes()
	if err != nil {
		return nil
	}
	for _, n := range all {
		if rest, ok := strings.CutPrefix(n, pools.SalvagePrefix+id); ok && rest != "" {
			out = append(out, n)
		}
	}
	return out
}

// Content reports whether a folder of the pool has a copy, or an outline or what the read cache
// kept of one. A copy comes first: whatever is beside it, it is never taken for an outline.
func Content(fs vfs.FS, dir string) (isCopy, isOutline bool, err error) {
	names, err := fs.List(dir)
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "outline"), strings.HasSuffix(name, ".cache"):
			isOutline = true
		default:
			isCopy = true
		}
	}
	return isCopy, isOutline && !isCopy, err
}

// Held are those of some volumes of which the pools have a copy, open or not, or one that was set
// aside.
func (s *Folders) Held(of func(id string) bool) (map[string]bool, error) {
	all, err := s.cfg.Pool.ListVolumes()
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, folder := range all {
		id, aside := strings.CutPrefix(folder, pools.SalvagePrefix)
		if aside {
			id = Volume(id)
		}
		if !of(id) {
			continue
		}
		if !aside {
			dir, err := s.cfg.Pool.Volume(folder)
			if err != nil {
				return nil, err
			}
			if aside, _, err = Content(s.cfg.FS, dir.Path()); err != nil {
				return nil, err
			}
		}
		out[id] = out[id] || aside
	}
	return out, nil
}

// shedEvery is how often a copy that was set aside leaves what its site's store has. The new copy
// uploads what the one before it had not.
const shedEvery = 10 * time.Minute

// Shed removes from the pools what the site's store has of the copies that were set aside, among
// these folders of the pool: of each after a start and from time to time. It reports whether it did
// not go well, and is to be tried again.
func (s *Folders) Shed(folders []string) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	for _, folder := range folders {
		name, aside := strings.CutPrefix(folder, pools.SalvagePrefix)
		if !aside || len(name) < uuidLength || now.Sub(s.shed[folder]) < shedEvery {
			continue
		}
		if err := s.shedOne(Volume(name), folder); err != nil {
			s.cfg.Logger.Warn("a copy that was set aside stays on the pool as a whole for now", "folder", folder, "error", err)
			again = true
			continue
		}
		s.shed[folder] = now
	}
	return again
}

const uuidLength = len("00000000-0000-0000-0000-000000000000")

// Volume is the volume of a folder, by what follows the prefix of its name.
func Volume(rest string) string { return rest[:min(len(rest), uuidLength)] }

// shedTime bounds the question what a store has.
const shedTime = 30 * time.Second

// shedOne removes from the pool what the site's store has of a copy that was set aside, and its
// read cache. The store itself is asked: nobody else may have it.
func (s *Folders) shedOne(id, folder string) error {
	volume, err := uuid.Parse(id)
	if err != nil {
		return err
	}
	aside, err := s.cfg.Pool.Volume(folder)
	if err != nil {
		return err
	}
	if err := s.cfg.Pool.Of(folder).Reads.Drop(folder, aside); err != nil || s.cfg.Store == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), shedTime)
	defer cancel()
	stored := map[string]int64{}
	if err := s.cfg.Store.List(ctx, id+"/", func(i store.Info) error {
		stored[i.Name] = i.Size
		return nil
	}); err != nil {
		return err
	}
	freed, err := log.Shed(aside, segment.VolumeID(volume), stored)
	s.cfg.Pool.Room(folder).Release(freed)
	return err
}

// Clear deletes what the site's store has of a volume. After an error the next attempt goes on.
func (s *Folders) Clear(ctx context.Context, id string) error {
	if s.cfg.Store == nil {
		return nil
	}
	var names []string
	err := s.cfg.Store.List(ctx, id+"/", func(i store.Info) error {
		names = append(names, i.Name)
		return nil
	})
	for _, n := range names {
		if err == nil {
			err = s.cfg.Store.Delete(ctx, n)
		}
	}
	if err != nil {
		return fmt.Errorf("delete it from the site's store: %w", err)
	}
	return nil
}
