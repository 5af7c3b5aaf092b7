// SPDX-License-Identifier: Apache-2.0

package blind

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/pack"
)

const (
	noteName = "checkpoint.noted"
	noteTemp = "checkpoint.noted.tmp"
)

// note is what a copy without a key has of checkpoints in its site's store.
type note struct {
	Newest at
	Former at       // zero: there is none
	Packs  []packed // that count at the newest
}

// at is one that is committed.
type at struct {
	Number uint64       // zero: none
	At     log.Position // all before it is in the checkpoint
	Hash   checkpoint.Hash
}

// packed is a pack that counts.
type packed struct {
	Hash   pack.Hash
	Length uint64 // bytes
}

// noted returns what is noted in a copy's folder; zero: nothing is. What is damaged counts as
// nothing: it is noted anew.
func noted(dir cachepool.Dir) (n note, err error) {
	b, err := cachepool.ReadAll(dir, noteName)
	if errors.Is(err, fs.ErrNotExist) {
		return n, nil
	}
	if err != nil {
		return n, fmt.Errorf("read %s: %w", noteName, err)
	}
	const sum = len(checkpoint.Hash{})
	if len(b) < sum || blake3.Sum256(b[sum:]) != [sum]byte(b) || json.Unmarshal(b[sum:], &n) != nil {
		return note{}, nil
	}
	return n, nil
}

// Noted returns the newest checkpoint that is noted in a copy's folder; zero: none.
func (*Keeper) Noted(dir cachepool.Dir) (checkpoint.Hash, error) {
	n, err := noted(dir)
	return n.Newest.Hash, err
}

// write makes a note durable.
func (n note) write(dir cachepool.Dir) error {
	b, err := json.Marshal(n)
	if err == nil {
		sum := blake3.Sum256(b)
		err = cachepool.Replace(dir, noteTemp, noteName, append(sum[:], b...))
	}
	if err != nil {
		return fmt.Errorf("note a checkpoint: %w", err)
	}
	return nil
}

// Forget removes the note of a copy that has a key now, if there is one.
func (*Keeper) Forget(dir cachepool.Dir) error {
	err := dir.Remove(noteName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = dir.Sync()
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", noteName, err)
	}
	return nil
}
