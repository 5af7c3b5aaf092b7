// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"

	"github.com/weir-storage/weir/volume"
)

// unlocked is a volume without its locks.
type unlocked interface {
	volume.Reader
	volume.Changer
}

// picture describes everything that a client can see of a volume, without the numbers that differ
// between implementations. It numbers inodes by their first path.
func picture(t testing.TB, v unlocked) string {
	t.Helper()
	ctx := context.Background()
	var b strings.Builder
	numbers := make(map[volume.Handle]int)
	fail := func(what string, err error) {
		if err != nil {
			t.Helper()
			t.Fatalf("picture: %s: %v", what, err)
		}
	}
	var walk func(path string, h volume.Handle)
	walk = func(path string, h volume.Handle) {
		a, err := v.GetAttr(ctx, asRoot, h)
		fail(path, err)
		if _, ok := numbers[h]; !ok {
			numbers[h] = len(numbers)
		}
		fmt.Fprintf(&b, "%s #%d type %d mode %o nlink %d uid %d gid %d size %d used %d",
			path, numbers[h], a.Type, a.Mode, a.Nlink, a.UID, a.GID, a.Size, a.Used)
		names, err := v.ListXattr(ctx, asRoot, h)
		fail(path, err)
		for _, name := range names {
			value, err := v.GetXattr(ctx, asRoot, h, name)
			fail(path, err)
			fmt.Fprintf(&b, " %s=%x", name, value)
		}
		switch a.Type {
		case volume.Regular:
			p := make([]byte, a.Size)
			for off := 0; off < len(p); off += 1 << 20 {
				_, _, err := v.Read(ctx, asRoot, h, uint64(off), p[off:min(len(p), off+1<<20)])
				fail(path, err)
			}
			fmt.Fprintf(&b, " content %x\n", p)
		case volume.Symlink:
			target, err := v.ReadLink(ctx, asRoot, h)
			fail(path, err)
			fmt.Fprintf(&b, " to %q\n", target)
		case volume.Directory:
			b.WriteString("\n")
			entries, eof, err := v.ReadDir(ctx, asRoot, h, 0, 1<<20)
			fail(path, err)
			if !eof {
				t.Fatalf("picture: %s: listing has no end", path)
			}
			sort.Slice(entries, func(i, j int) bool { return entries[i].Name < entries[j].Name })
			for _, e := range entries {
				walk(path+"/"+e.Name, e.Attr.Handle)
			}
		default:
			b.WriteString("\n")
		}
	}
	walk("", volume.Root)
	s, err := v.Space(ctx)
	fail("space", err)
	fmt.Fprintf(&b, "used %d bytes, %d inodes\n", s.TotalBytes-s.FreeBytes, s.TotalInodes-s.FreeInodes)
	return b.String()
}

// step is a random change that can be made to any volume. It names inodes by path.
type step struct {
	kind                   int
	dir, name, dir2, name2 string
	off, size              uint64
	data                   []byte
	id                     volume.OpID
}

func randomStep(rng *rand.Rand, i int) step {
	dirs := []string{"", "", "a", "b", "a/c"}
	names := []string{"a", "b", "c", "f", "g", "h"}
	s := step{
		kind: rng.IntN(12), dir: dirs[rng.IntN(len(dirs))], name: names[rng.IntN(len(names))],
		dir2: dirs[rng.IntN(len(dirs))], name2: names[rng.IntN(len(names))],
		off: rng.Uint64N(150 << 10), size: rng.Uint64N(100 << 10), data: make([]byte, rng.IntN(100<<10)),
		id: volume.OpID{Slot: "slot", Seq: uint32(i + 1)},
	}
	for j := range s.data {
		s.data[j] = byte(i)
	}
	return s
}

func find(v unlocked, path string) (volume.Handle, error) {
	h := volume.Root
	for part := range strings.SplitSeq(path, "/") {
		if part == "" {
			continue
		}
		a, err := v.Lookup(context.Background(), asRoot, h, part)
		if err != nil {
			return h, err
		}
		h = a.Handle
	}
	return h, nil
}

// do makes the change. Errors that a random step may provoke are its outcome.
func (s step) do(ctx context.Context, v unlocked) error {
	r := volume.Request{ID: s.id}
	dir, err := find(v, s.dir)
	if err != nil {
		return err
	}
	mode := uint32(0o644)
	create := func(args volume.CreateArgs) error {
		args.Mode = volume.Guarded
		args.Attr.Mode = &mode
		_, err := v.Create(ctx, r, dir, s.name, args)
		return err
	}
	file, ferr := find(v, s.dir+"/"+s.name)
	switch s.kind {
	case 0, 1:
		return create(volume.CreateArgs{Type: volume.Regular})
	case 2, 3:
		return create(volume.CreateArgs{Type: volume.Directory})
	case 4:
		return create(volume.CreateArgs{Type: volume.Symlink, Target: s.name2})
	case 5:
		_, err := v.Remove(ctx, r, dir, s.name)
		return err
	case 6:
		to, err := find(v, s.dir2)
		if err != nil {
			return err
		}
		_, _, err = v.Rename(ctx, r, dir, s.name, to, s.name2)
		return err
	}
	if ferr != nil {
		return ferr
	}
	switch s.kind {
	case 7, 8:
		_, err = v.Write(ctx, r, file, s.off, s.data, true)
	case 9:
		_, err = v.Punch(ctx, r, file, s.off, s.size)
	case 10:
		_, err = v.SetAttr(ctx, r, file, volume.SetAttr{Size: &s.size})
	case 11:
		_, err = v.SetXattr(ctx, r, file, "user."+s.name2, s.data[:min(len(s.data), 10)], volume.XattrEither)
	}
	return err
}
