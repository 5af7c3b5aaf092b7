// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-storage/weir/volume"
)

// testDurable checks what a restart must keep, and what it must change.
func testDurable(e *env) {
	if e.s.Restart == nil {
		return
	}
	work := e.workDir()
	p := e.place(work, "place")
	e.create(p.dir, "link", linkArgs("target"))
	for i := range 50 {
		e.file(p.dir, fmt.Sprint(i), 0o644)
	}
	removed := e.file(work, "removed", 0o644)
	e.remove(work, "removed")
	orphan := e.file(work, "orphan", 0o644)
	big := e.file(work, "big", 0o644)
	for i := range uint64(5) {
		w, err := e.v.Write(e.ctx, e.req(), big, i<<20, []byte(strings.Repeat(string(rune('a'+i)), 1<<20)), false)
		e.ok(err)
		_ = w
	}
	verifier, err := e.v.Commit(e.ctx, e.req(), big)
	e.ok(err)
	w, err := e.v.Write(e.ctx, e.req(), p.file, 0, []byte("stable"), true)
	e.ok(err)
	if w.Verifier != verifier {
		e.Errorf("the verifier went from %x to %x though nothing was lost", verifier, w.Verifier)
	}
	half, _, err := e.v.ReadDir(e.ctx, e.req(), p.dir, 0, 20)
	e.ok(err)
	all := e.list(p.dir, 100)
	before := e.picture(work)
	newest := e.attr(orphan)
	e.remove(work, "orphan")
	id := e.v.ID()

	e.v = e.s.Restart()
	if e.v.ID() != id {
		e.Errorf("the volume is %v, was %v", e.v.ID(), id)
	}
	e.create(work, "orphan", fileArgs(0o644))
	got := e.lookup(work, "orphan")
	if got.Ino == orphan.Ino || got.Ino == removed.Ino || got.Change <= newest.Change {
		e.Errorf("a new file has inode %d (removed ones: %d, %d) and change %d (the removed one's: %d)", got.Ino, orphan.Ino, removed.Ino, got.Change, newest.Change)
	}
	for _, h := range []volume.Handle{removed, orphan} {
		_, err := e.v.GetAttr(e.ctx, e.req(), h)
		e.fails(err, volume.ErrStale)
	}
	e.remove(work, "orphan")
	strip := func(s string) string { // removes the lines of work and of the temporary file
		var kept []string
		for line := range strings.Lines(s) {
			if !strings.HasPrefix(line, "/orphan ") && !strings.HasPrefix(line, " ") {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "")
	}
	if after := e.picture(work); strip(after) != strip(before) {
		e.Errorf("a restart changed something:\n%.2000s\nwas\n%.2000s", strip(after), strip(before))
	}
	rest, eof, err := e.v.ReadDir(e.ctx, e.req(), p.dir, half[len(half)-1].Cookie, 100)
	e.ok(err)
	if listed := append(names(half), names(rest)...); !eof || !slices.Equal(listed, names(all)) {
		e.Errorf("a listing continued after a restart has %v, want %v", listed, names(all))
	}
	if w := e.lookup(work, "big"); w.Handle != big {
		e.Errorf("the handle of a file went from %+v to %+v", big, w.Handle)
	}
}

// testUnstable checks that unstable data is there after a restart, or that its
// loss shows.
func testUnstable(e *env) {
	e.sub("verifier", func(e *env, dir volume.Handle) {
		f, g := e.file(dir, "f", 0o644), e.file(dir, "g", 0o644)
		var seen []volume.Verifier
		for _, stable := range []bool{false, true, false} {
			w, err := e.v.Write(e.ctx, e.req(), f, 0, []byte("x"), stable)
			e.ok(err)
			seen = append(seen, w.Verifier)
		}
		for _, h := range []volume.Handle{f, g} {
			c, err := e.v.Commit(e.ctx, e.req(), h)
			e.ok(err)
			seen = append(seen, c)
		}
		if len(slices.Compact(seen)) != 1 {
			e.Errorf("verifiers differ though nothing was lost: %x", seen)
		}
	})
	if e.s.Restart == nil {
		return
	}
	work := e.workDir()
	f := e.file(work, "f", 0o644)
	e.write(f, 0, "committed")
	id := volume.OpID{Slot: "unstable", Seq: 1}
	write := func(e *env) volume.Written {
		w, err := e.v.Write(e.ctx, volume.Request{ID: id}, f, 0, []byte("UNSTABLE DATA"), false)
		e.ok(err)
		return w
	}
	first := write(e)
	if e.content(f) != "UNSTABLE DATA" {
		e.Error("unstable data is not visible at once")
	}
	mixed := mixedChanges(e, work)
	e.v = e.s.Restart()
	verifier, err := e.v.Commit(e.ctx, e.req(), e.file(work, "any", 0o644))
	e.ok(err)
	if got := e.content(f); got != "UNSTABLE DATA" && verifier == first.Verifier {
		e.Errorf("unstable data became %q, but the verifier is still %x", got, verifier)
	}
	mixed(e)
	// The client then sends the same request again, and a Commit.
	write(e)
	_, err = e.v.Commit(e.ctx, e.req(), f)
	e.ok(err)
	e.v = e.s.Restart()
	if got := e.content(f); got != "UNSTABLE DATA" {
		e.Errorf("data is %q after writing it again, a Commit and a restart", got)
	}
	// A late repeat of a committed write does not undo a later one.
	e.write(f, 0, "later")
	write(e)
	if got := e.content(f); got != "laterBLE DATA" {
		e.Errorf("data is %q: a repeat of a committed write was executed again", got)
	}
}

// mixedChanges makes files with unstable data and then a committed change. The
// function that it returns checks that the committed change is there.
func mixedChanges(e *env, work volume.Handle) func(*env) {
	changes := []struct {
		name  string
		do    func(f volume.Handle)
		check func(e *env, f volume.Handle) bool
	}{
		{"stable write", func(f volume.Handle) { e.write(f, 5, "stable") }, func(e *env, f volume.Handle) bool {
			return len(e.content(f)) == 11 && e.content(f)[5:] == "stable"
		}},
		{"chmod", func(f volume.Handle) { e.setAttr(f, volume.SetAttr{Mode: ptr(uint32(0o640))}) }, func(e *env, f volume.Handle) bool {
			return e.attr(f).Mode == 0o640
		}},
		{"mtime", func(f volume.Handle) { e.setAttr(f, volume.SetAttr{Mtime: &past}) }, func(e *env, f volume.Handle) bool {
			return e.attr(f).Mtime.Equal(past)
		}},
		{"truncate", func(f volume.Handle) { e.setAttr(f, volume.SetAttr{Size: ptr(uint64(3))}) }, func(e *env, f volume.Handle) bool {
			return e.attr(f).Size == 3 && len(e.content(f)) == 3
		}},
		{"extend", func(f volume.Handle) { e.setAttr(f, volume.SetAttr{Size: ptr(uint64(7000))}) }, func(e *env, f volume.Handle) bool {
			return e.attr(f).Size == 7000 && e.content(f)[10:] == strings.Repeat("\x00", 6990)
		}},
		{"punch", func(f volume.Handle) {
			_, err := e.v.Punch(e.ctx, e.req(), f, 2, 3)
			e.ok(err)
		}, func(e *env, f volume.Handle) bool { return e.content(f)[2:5] == "\x00\x00\x00" }},
		{"set xattr", func(f volume.Handle) {
			_, err := e.v.SetXattr(e.ctx, e.req(), f, "user.a", []byte("x"), volume.XattrEither)
			e.ok(err)
		}, func(e *env, f volume.Handle) bool {
			value, err := e.v.GetXattr(e.ctx, e.req(), f, "user.a")
			return err == nil && string(value) == "x"
		}},
	}
	files := make([]volume.Handle, len(changes))
	for i, c := range changes {
		files[i] = e.file(work, c.name, 0o644)
		e.write(files[i], 0, "old d")
		_, err := e.v.Write(e.ctx, e.req(), files[i], 0, []byte("NEW DATA"), false)
		e.ok(err)
		c.do(files[i])
	}
	return func(e *env) {
		e.Helper()
		for i, c := range changes {
			if !c.check(e, files[i]) {
				e.Errorf("%s after an unstable write was lost: %+v, %.20q", c.name, e.attr(files[i]), e.content(files[i]))
			}
		}
	}
}
