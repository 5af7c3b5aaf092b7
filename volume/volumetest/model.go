// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/memvol"
)

// testModel makes random changes to the subject and to a memvol, and compares
// every answer and the trees at the end. Each sequence has a directory of its own.
func testModel(e *env) {
	reference := memvol.New(volume.ID{0xff})
	var slots uint32
	rapid.Check(e.T, func(t *rapid.T) {
		slots++
		m := &model{
			trails: e.s.Trails,
			tidy:   e.s.Tidy,
			ctx:    e.ctx,
			sides:  [2]volume.Volume{e.v, reference},
			ids:    make(map[volume.Handle]int),
			last:   make(map[volume.Handle]seen),
			slot:   fmt.Sprintf("model %d", slots),
		}
		var top [2]volume.Handle
		for i, v := range m.sides {
			c, err := v.Create(e.ctx, volume.Request{}, volume.Root, m.slot, dirArgs(0o777))
			if err != nil {
				t.Fatal(err)
			}
			top[i] = c.Attr.Handle
		}
		m.add(top)
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			m.step(t)
		}
		m.compareAll(t)
		m.releaseAll()
	})
}

// model is one sequence of operations on both sides: 0 is the subject, 1 the reference.
type model struct {
	trails bool // of Subject
	tidy   func()
	ctx    context.Context
	sides  [2]volume.Volume
	inode  [][2]volume.Handle    // every inode that was ever created, on both sides
	holds  []int                 // by index of inode
	ids    map[volume.Handle]int // of the subject's handle in inode
	last   map[volume.Handle]seen
	slot   string
	seq    uint32
	snaps  []kept // snapshots that are kept
	taken  int
}

// kept is a snapshot on both sides.
type kept struct {
	name string
	gen  [2]uint32
}

// seen is the newest state of an inode that the subject returned.
type seen struct {
	shape  string
	change uint64
}

func (m *model) add(h [2]volume.Handle) {
	m.ids[h[0]] = len(m.inode)
	m.inode = append(m.inode, h)
	m.holds = append(m.holds, 0)
}

var past = time.Date(2001, 2, 3, 4, 5, 6, 7, time.UTC)

// shape describes what must be equal on both sides, with inodes by their index.
func (m *model) shape(side int, a volume.Attr) string {
	a.Snap = 0
	id := slices.IndexFunc(m.inode, func(h [2]volume.Handle) bool { return h[side] == a.Handle })
	if a.Handle == volume.Root {
		return "root"
	}
	size := a.Size
	if a.Type == volume.Directory {
		size = 0
	}
	return fmt.Sprintf("#%d type %d mode %#o links %d owner %d:%d device %d size %d old %v %v",
		id, a.Type, a.Mode, a.Nlink, a.UID, a.GID, a.Rdev, size, a.Atime.Equal(past), a.Mtime.Equal(past))
}

// answer is one side's outcome of one operation.
type answer struct {
	err   error
	attrs []volume.Attr
	text  string
	dirs  []volume.DirChange
	fresh *volume.Attr // a new inode
	snap  *volume.Snapshot
}

// operation runs on one side and uses the handles of that side.
type operation func(v volume.Volume, r volume.Request, a, b volume.Handle) answer

func (m *model) step(t *rapid.T) {
	op := m.draw(t)
	pick := func(label string) int {
		// The newest inodes are the most interesting ones.
		return max(0, len(m.inode)-1-rapid.IntRange(0, len(m.inode)-1).Draw(t, label))
	}
	a, b := pick("inode"), pick("other inode")
	r := volume.Request{Caller: rapid.SampledFrom([]volume.Caller{root, root, alice, bob}).Draw(t, "caller")}
	repeat := rapid.IntRange(0, 3).Draw(t, "repeat") == 0
	if repeat {
		m.seq++
		r.ID = volume.OpID{Slot: m.slot, Seq: m.seq}
	}
	var answers [2]answer
	for side, v := range m.sides {
		answers[side] = op(v, r, m.inode[a][side], m.inode[b][side])
	}
	if f := [2]*volume.Attr{answers[0].fresh, answers[1].fresh}; f[0] != nil && f[1] != nil {
		m.add([2]volume.Handle{f[0].Handle, f[1].Handle})
	}
	if s := [2]*volume.Snapshot{answers[0].snap, answers[1].snap}; s[0] != nil && s[1] != nil {
		m.snaps = append(m.snaps, kept{name: s[0].Name, gen: [2]uint32{s[0].Snap, s[1].Snap}})
	}
	var text [2]string
	for side := range m.sides {
		text[side] = m.text(side, answers[side])
	}
	if text[0] != text[1] {
		t.Fatalf("inodes #%d and #%d, caller %d:\nsubject  %s\n         (%v)\nmemvol   %s", a, b, r.Caller.UID, text[0],
			answers[0].err, text[1])
	}
	if repeat {
		again := op(m.sides[0], r, m.inode[a][0], m.inode[b][0])
		if got := m.text(0, again); got != text[0] {
			t.Fatalf("the repeat of an operation says\n%s, first\n%s", got, text[0])
		}
	}
	for _, attr := range answers[0].attrs {
		m.checkChange(t, attr)
	}
	for _, d := range answers[0].dirs {
		if d.After < d.Before {
			t.Fatalf("directory change went from %d to %d", d.Before, d.After)
		}
	}
}

// checkChange checks that the subject keeps protocol-21.
func (m *model) checkChange(t *rapid.T, a volume.Attr) {
	now := seen{m.shape(0, a), a.Change}
	before, ok := m.last[a.Handle]
	if ok && (now.change < before.change || now.shape != before.shape && now.change == before.change) {
		t.Fatalf("inode was %+v and is %+v", before, now)
	}
	m.last[a.Handle] = now
}

func (m *model) text(side int, a answer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s", outcome(a.err), a.text)
	for _, attr := range a.attrs {
		fmt.Fprintf(&b, " [%s]", m.shape(side, attr))
	}
	for _, d := range a.dirs {
		fmt.Fprintf(&b, " changed %v", d.After != d.Before)
	}
	return b.String()
}

// compareAll compares every inode that was ever created, and its content.
func (m *model) compareAll(t *rapid.T) {
	for i := range m.inode {
		var text [2]string
		for side, v := range m.sides {
			text[side] = m.whole(side, v, m.inode[i][side])
		}
		if text[0] != text[1] {
			t.Fatalf("at the end, inode #%d:\nsubject %s\nmemvol  %s", i, text[0], text[1])
		}
	}
	for _, s := range m.snaps {
		for i := range m.inode {
			var text [2]string
			for side, v := range m.sides {
				h := m.inode[i][side]
				h.Snap = s.gen[side]
				text[side] = m.whole(side, v, h)
			}
			if text[0] != text[1] {
				t.Fatalf("at the end, inode #%d in snapshot %s:\nsubject %s\nmemvol  %s", i, s.name, text[0], text[1])
			}
		}
	}
}

func (m *model) whole(side int, v volume.Volume, h volume.Handle) string {
	var r volume.Request
	a, err := v.GetAttr(m.ctx, r, h)
	if err != nil {
		return fmt.Sprint(outcome(err))
	}
	text := m.shape(side, a)
	switch a.Type {
	case volume.Regular:
		data, err := readAll(m.ctx, v, r, h)
		text += fmt.Sprintf(" %q %v", data, outcome(err))
	case volume.Symlink:
		target, err := v.ReadLink(m.ctx, r, h)
		text += fmt.Sprintf(" %q %v", target, outcome(err))
	case volume.Directory:
		entries, err := listAll(m.ctx, v, r, h, 5)
		slices.SortFunc(entries, func(x, y volume.Entry) int { return strings.Compare(x.Name, y.Name) })
		text += fmt.Sprintf(" %v", outcome(err))
		for _, e := range entries {
			text += fmt.Sprintf(" %q=[%s]", e.Name, m.shape(side, e.Attr))
		}
	}
	list, err := v.ListXattr(m.ctx, r, h)
	text += fmt.Sprintf(" %v", outcome(err))
	for _, name := range list {
		value, err := v.GetXattr(m.ctx, r, h, name)
		text += fmt.Sprintf(" %s=%q %v", name, value, outcome(err))
	}
	return text
}

func (m *model) releaseAll() {
	for i, n := range m.holds {
		for range n {
			for side, v := range m.sides {
				v.Release(m.inode[i][side])
			}
		}
	}
	for _, s := range m.snaps {
		for _, v := range m.sides {
			_ = v.(volume.Snapshotter).DropSnapshot(m.ctx, volume.Request{}, s.name)
		}
	}
}

// draw draws an operation and its arguments, except the caller and the inodes.
func (m *model) draw(t *rapid.T) operation {
	kinds := m.kinds()
	return kinds[rapid.SampledFrom(slices.Sorted(maps.Keys(kinds))).Draw(t, "operation")](t)
}
