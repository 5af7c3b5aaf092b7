// SPDX-License-Identifier: Apache-2.0

// Package belief keeps the note that a person goes on with what is left of a log in doubt.
//
// He says so to the registry first: a forced takeover, whose home is this pool with a log of
// another identity. That identity is noted beside the log before. The copy is opened with what is
// left as soon as the record names it, also after a crash, and not before. Whoever changed the
// record meanwhile makes the takeover fail.
package belief

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
)

const (
	noteName = "believed"
	noteTemp = "believed.tmp"
)

// Note returns the identity that the log in a folder of the pool gets. It is durable when Note
// returns, and the same at each call.
func Note(dir cachepool.Dir, random io.Reader) (cachepool.ID, error) {
	if id, err := Noted(dir); err != nil || !id.IsZero() {
		return id, err
	}
	id, err := cachepool.NewID(random)
	if err != nil {
		return id, err
	}
	if err = cachepool.Replace(dir, noteTemp, noteName, id[:]); err != nil {
		return cachepool.ID{}, fmt.Errorf("note the log's new identity: %w", err)
	}
	return id, nil
}

// Noted returns the identity that is noted; zero: none.
func Noted(dir cachepool.Dir) (id cachepool.ID, err error) {
	b, err := cachepool.ReadAll(dir, noteName)
	if errors.Is(err, fs.ErrNotExist) {
		return id, nil
	}
	if err == nil && len(b) < len(id) {
		err = fmt.Errorf("read %s: %w", noteName, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return id, err
	}
	copy(id[:], b)
	return id, nil
}

// By is how the log of self's copy is to be believed that has a note, by the control record; zero:
// it is not.
func By(ctl federation.Control, self federation.Member, noted cachepool.ID) log.Belief {
	var last federation.EpochStart
	if n := len(ctl.History); n > 0 {
		last = ctl.History[n-1]
	}
	if ctl.Home.Pool() != self.Pool() || ctl.Home.Log != noted.String() || !last.Forced || last.Epoch != ctl.Epoch {
		return log.Belief{}
	}
	return log.Belief{Identity: noted, End: log.Position(last.Start)}
}

// Forget removes the note when the copy is open, so that nothing that is lost later is believed.
func Forget(dir cachepool.Dir) error {
	if err := dir.Remove(noteName); err != nil {
		return fmt.Errorf("remove %s: %w", noteName, err)
	}
	return dir.Sync()
}

// HadLog reports whether a member of the volume must have something in its log. A first home that
// died between its swap and the beginning of its epoch has nothing.
func HadLog(ctl federation.Control) bool {
	if len(ctl.Members) > 1 {
		return true
	}
	for _, e := range ctl.History {
		if e.Start != (federation.Position{}) {
			return true
		}
	}
	return false
}
