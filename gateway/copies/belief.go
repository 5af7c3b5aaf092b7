// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/counted"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/belief"
)

// Believe returns the identity that the log of a volume in doubt gets when a person goes on with
// what is left of it. It is durable when Believe returns, and the same at each call.
func (m *Manager) Believe(id string) (cachepool.ID, error) {
	dir, err := m.cfg.Pool.Volume(id)
	if err != nil {
		return cachepool.ID{}, err
	}
	return belief.Note(dir, m.cfg.Rand)
}

// belief returns how the log of a copy is to be believed; zero: it is not.
func (m *Manager) belief(ctx context.Context, dir cachepool.Dir, id string) (log.Belief, error) {
	noted, err := belief.Noted(dir)
	if err != nil || noted.IsZero() {
		return log.Belief{}, err
	}
	ctl, _, err := m.cfg.Registry.GetControl(ctx, id)
	if err != nil {
		return log.Belief{}, fmt.Errorf("read the control record of volume %s: %w", id, err)
	}
	return belief.By(ctl, m.cfg.Self, noted), nil
}

// errAhead reports metadata that are not of their log any more.
var errAhead = errors.New("the metadata have more than the log")

// openBelieved opens a copy. Metadata that have more than what is left of a log that is believed
// are made anew from it, and so are those that are damaged because they went back.
func (m *Manager) openBelieved(ctx context.Context, v federation.Volume) (*Copy, error) {
	c, err := m.open(ctx, v)
	if !errors.Is(err, errAhead) {
		return c, err
	}
	dir, err := m.cfg.Pool.Volume(v.UUID)
	if err != nil {
		return nil, err
	}
	if err := m.retireMeta(dir); err != nil {
		return nil, fmt.Errorf("make the metadata of volume %s anew: %w", v.Name, err)
	}
	return m.open(ctx, v)
}

// retireMeta marks a copy's metadata, if there are any, as not used any more.
func (m *Manager) retireMeta(dir cachepool.Dir) error {
	folder := filepath.Join(dir.Path(), metaFolder)
	if _, err := m.cfg.FS.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := m.cfg.FS.Rename(folder, folder+oldSuffix); err != nil { // a part of it could not be opened
		return err
	}
	return dir.Sync()
}

// oldSuffix marks metadata that are not used any more.
const oldSuffix = ".old"

// dropOld removes metadata that are not used any more.
func (m *Manager) dropOld(dir cachepool.Dir, id string) error {
	folder := filepath.Join(dir.Path(), metaFolder) + oldSuffix
	there, err := counted.Size(m.cfg.FS, folder)
	if err != nil || there == 0 {
		return err
	}
	if err := m.cfg.FS.RemoveAll(folder); err != nil {
		return err
	}
	m.cfg.Pool.Room(id).Count(-there)
	return nil
}
