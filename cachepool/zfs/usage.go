// SPDX-License-Identifier: Apache-2.0

package zfs

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-storage/weir/cachepool"
)

// classes returns how much is used of the devices of each class. text is what zpool iostat -v
// prints: for a mirror or a raidz the line of the group has how much, else that of the device.
func (t Tools) classes(text string, s Status) (out []cachepool.ClassUse) {
	class := map[string]cachepool.Class{} // by device
	for _, d := range s.Devices {
		class[d.Name] = d.Class
	}
	use := map[cachepool.Class]*cachepool.ClassUse{}
	of := func(c cachepool.Class) *cachepool.ClassUse {
		if use[c] == nil {
			use[c] = &cachepool.ClassUse{Class: c}
		}
		return use[c]
	}
	var size, used int64 // of a group whose devices come next
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) != 7 || words[0] == s.Pool {
			continue
		}
		alloc, err := parseCount(words[1])
		free, ferr := parseCount(words[2])
		known := err == nil && ferr == nil
		c, device := class[words[0]]
		switch {
		case device && known:
			of(c).Size += alloc + free
			of(c).Used += alloc
		case device:
			of(c).Size += size
			of(c).Used += used
			size, used = 0, 0
		case known:
			size, used = alloc+free, alloc
		}
	}
	for _, d := range s.Devices {
		read, written := t.transferred(d.Name)
		u := of(d.Class)
		u.Read += read
		u.Written += written
	}
	for _, c := range []cachepool.Class{cachepool.Data, cachepool.Special, cachepool.Log, cachepool.Cache} {
		if u := use[c]; u != nil {
			out = append(out, *u)
		}
	}
	return out
}

// Where a device is, whose name is as zpool shows it.
var deviceFolders = []string{"/dev", "/dev/disk/by-id", "/dev/disk/by-path", "/dev/disk/by-vdev", "/dev/disk/by-partuuid",
	"/dev/disk/by-uuid", "/dev/mapper"}

// transferred returns how many bytes the kernel has read from a device and written to it since the
// machine started (Documentation/block/stat.rst: sectors of 512 bytes); zero if it is not known.
func (t Tools) transferred(name string) (read, written uint64) {
	folders := deviceFolders
	if filepath.IsAbs(name) {
		folders = []string{"/"}
	}
	for _, folder := range folders {
		path, err := filepath.EvalSymlinks(filepath.Join(t.Root, folder, name))
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/sys/class/block", filepath.Base(path), "stat"))
		words := strings.Fields(string(text))
		if err != nil || len(words) < 7 {
			continue
		}
		r, _ := strconv.ParseUint(words[2], 10, 64)
		w, _ := strconv.ParseUint(words[6], 10, 64)
		return r * 512, w * 512
	}
	return 0, 0
}

// Where ZFS counts what its caches do: OpenZFS in a table, zfs-fuse in a file for each counter.
const (
	kstatTable  = "/proc/spl/kstat/zfs/arcstats"
	kstatFolder = "/zfs-kstat/zfs/arcstats"
)

// tiers returns what ZFS counts of its memory and of its cache devices; nil: it is not known.
func (t Tools) tiers() (arc, l2arc *cachepool.Tier) {
	text, err := os.ReadFile(filepath.Join(t.Root, kstatTable))
	get := func(name string) (uint64, bool) {
		b, err := os.ReadFile(filepath.Join(t.Root, kstatFolder, name))
		n, nerr := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		return n, err == nil && nerr == nil
	}
	if err == nil {
		get = table(string(text))
	}
	tier := func(size, hits, misses string) *cachepool.Tier {
		s, a := get(size)
		h, b := get(hits)
		m, c := get(misses)
		if !a || !b || !c {
			return nil
		}
		return &cachepool.Tier{Size: int64(s), Hits: h, Misses: m}
	}
	return tier("size", "hits", "misses"), tier("l2_size", "l2_hits", "l2_misses")
}

// table reads lines of name, type and number.
func table(text string) func(name string) (uint64, bool) {
	all := map[string]uint64{}
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) == 3 && slices.Contains([]string{"3", "4"}, words[1]) {
			if n, err := strconv.ParseUint(words[2], 10, 64); err == nil {
				all[words[0]] = n
			}
		}
	}
	return func(name string) (uint64, bool) {
		n, ok := all[name]
		return n, ok
	}
}
