// SPDX-License-Identifier: Apache-2.0

package log

import (
	"errors"
	"fmt"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

// Shed is Evict for a log of a volume that nobody has open: it removes the files of the segments
// that are in a store, and returns how many bytes of the pool's room they took. stored has the
// sizes of the objects that the store has now, by name: what the log noted may be of another store.
// What is left, and the store, are still the whole log. With an error, what was removed before
// counts too.
func Shed(dir cachepool.Dir, volume segment.VolumeID, stored map[string]int64) (freed int64, err error) {
	t, f, _, err := readTable(dir)
	if f != nil {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return 0, fmt.Errorf("shed the log in %s: %w", dir.Path(), err)
	}
	files, err := dir.List()
	if err != nil {
		return 0, fmt.Errorf("shed the log in %s: %w", dir.Path(), err)
	}
	shed := map[string]int64{}
	for _, f := range files {
		seq, ok := parseFileName(f.Name)
		if !ok {
			continue
		}
		i, noted := t.find(seq)
		if !noted || uint64(f.Size) != t.entries[i].len {
			continue
		}
		if size, there := stored[segment.Name(volume, seq, t.entries[i].hash)]; there && size == f.Size {
			t.entries[i].state = evicted
			shed[f.Name] = f.Size
		}
	}
	if len(shed) == 0 {
		return 0, nil
	}
	if err := writeTable(dir, t); err != nil {
		return 0, fmt.Errorf("shed the log in %s: %w", dir.Path(), err)
	}
	for name, size := range shed {
		if err := dir.Remove(name); err != nil {
			return freed, fmt.Errorf("shed the log in %s: %w", dir.Path(), err)
		}
		freed += size
	}
	return freed, nil
}
