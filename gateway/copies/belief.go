// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/counted"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
)

// A person who goes on with what is left of a log in doubt says so to the registry first: a forced
// takeover, whose home is this pool with a log of another identity. That identity is noted beside
// the log before. The copy is opened with what is left as soon as the record names it, also after a
// crash, and not before. Whoever changed the record meanwhile makes the takeover fail.
const (
	beliefName = "believed"
	beliefTemp = "believed.tmp"
)

// Believe returns the identity that the log of a volume in doubt gets when a person goes on with
// what is left of it. It is durable when Believe returns, and the same at each call.
func (m *Manager) Believe(id string) (cachepool.ID, error) {
	dir, err := m.cfg.Pool.Volume(id)
	if err != nil {
		return cachepool.ID{}, err
	}
	if belief, err := readBelief(dir); err != nil || !belief.IsZero() {
		return belief, err
	}
	belief, err := cachepool.NewID(m.cfg.Rand)
	if err != nil {
		return belief, err
	}
	err = cachepool.Replace(dir, beliefTemp, beliefName, belief[:])
	if err != nil {
		return cachepool.ID{}, fmt.Errorf("note the log's new identity: %w", err)
	}
	return belief, nil
}

// readBelief returns the identity that is noted; zero: none.
func readBelief(dir cachepool.Dir) (id cachepool.ID, err error) {
	b, err := cachepool.ReadAll(dir, beliefName)
	if errors.Is(err, fs.ErrNotExist) {
		return id, nil
	}
	if err == nil && len(b) < len(id) {
		err = fmt.Errorf("read %s: %w", beliefName, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return id, err
	}
	copy(id[:], b)
	return id, nil
}

// belief returns how the log of a copy is to be believed; zero: it is not.
func (m *Manager) belief(ctx context.Context, dir cachepool.Dir, id string) (log.Belief, error) {
	noted, err := readBelief(dir)
	if err != nil || noted.IsZero() {
		return log.Belief{}, err
	}
	ctl, _, err := m.cfg.Registry.GetControl(ctx, id)
	if err != nil {
		return log.Belief{}, fmt.Errorf("read the control record of volume %s: %w", id, err)
	}
	var last federation.EpochStart
	if n := len(ctl.History); n > 0 {
		last = ctl.History[n-1]
	}
	if ctl.Home.Pool() != m.cfg.Self.Pool() || ctl.Home.Log != noted.String() || !last.Forced || last.Epoch != ctl.Epoch {
		return log.Belief{}, nil
	}
	return log.Belief{Identity: noted, End: log.Position(last.Start)}, nil
}

// forgetBelief removes the note when the copy is open, so that nothing that is lost later is
// believed.
func forgetBelief(dir cachepool.Dir) error {
	if err := dir.Remove(beliefName); err != nil {
		return fmt.Errorf("remove %s: %w", beliefName, err)
	}
	return dir.Sync()
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
	folder := filepath.Join(dir.Path(), metaFolder)
	err = m.cfg.FS.Rename(folder, folder+oldSuffix) // a part of it could not be opened
	if err == nil {
		err = dir.Sync()
	}
	if err != nil {
		return nil, fmt.Errorf("make the metadata of volume %s anew: %w", v.Name, err)
	}
	return m.open(ctx, v)
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
