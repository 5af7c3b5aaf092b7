// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"strings"

	"github.com/weir-storage/weir/volume"
)

// testTrash removes things, looks at them in the trash, and restores them.
func testTrash(e *env) {
	if e.s.Trash == nil {
		e.Skip("the volume keeps no trash")
	}
	e.v = e.s.Trash()
	alice := volume.Request{Caller: volume.Caller{UID: 1000, GID: 1000}}
	bob := volume.Request{Caller: volume.Caller{UID: 1001, GID: 1001}}
	trashOf := func(dir volume.Handle) volume.Handle {
		e.Helper()
		a, err := e.v.Lookup(e.ctx, e.req(), dir, volume.TrashDir)
		e.ok(err)
		return a.Handle
	}
	remove := func(r volume.Request, dir volume.Handle, name string) {
		e.Helper()
		_, err := e.v.Remove(e.ctx, r, dir, name)
		e.ok(err)
	}
	has := func(dir volume.Handle, want string) {
		e.Helper()
		if got := e.names(dir); got != want {
			e.Errorf("the directory has %q, want %q", got, want)
		}
	}
	before, err := e.v.Space(e.ctx)
	e.ok(err)
	dir := e.mkdir(volume.Root, "dir", 0o777)
	_, err = e.v.Lookup(e.ctx, e.req(), dir, volume.TrashDir)
	e.fails(err, volume.ErrNotExist) // as long as nothing was removed

	// A file.
	f := e.file(dir, "f", 0o666)
	e.write(f, 0, "first")
	remove(e.req(), dir, "f")
	has(dir, "")
	bin := trashOf(dir)
	has(bin, "f")
	if a, err := e.v.Lookup(e.ctx, e.req(), bin, ".."); err != nil || a.Handle != dir {
		e.Errorf("above the trash is %v, %v", a.Handle, err)
	}
	if data, err := readAll(e.ctx, e.v, e.req(), f); err != nil || string(data) != "first" {
		e.Errorf("in the trash the file has %q, %v", data, err)
	}
	// Another one of the same name, by a rename over it: it gets a name of its own.
	g := e.file(dir, "f", 0o666)
	e.write(g, 0, "second")
	e.file(dir, "new", 0o666)
	e.ok(e.rename(dir, "new", dir, "f"))
	names := strings.Fields(e.names(bin))
	if len(names) != 2 || names[0] != "f" || !strings.HasPrefix(names[1], "f~") {
		e.Fatalf("the trash has %q", names)
	}
	// Nothing else changes there.
	_, err = e.v.Create(e.ctx, e.req(), bin, "x", fileArgs(0o666))
	e.fails(err, volume.ErrReadOnly)
	_, err = e.v.Link(e.ctx, e.req(), g, bin, "x")
	e.fails(err, volume.ErrReadOnly)
	e.fails(e.rename(dir, "f", bin, "x"), volume.ErrReadOnly)
	e.fails(e.rename(bin, "f", bin, "x"), volume.ErrReadOnly)
	mode := uint32(0o700)
	_, err = e.v.SetAttr(e.ctx, e.req(), bin, volume.SetAttr{Mode: &mode})
	e.fails(err, volume.ErrReadOnly)
	// Restored over what is there, which takes its place.
	e.ok(e.rename(bin, names[1], dir, "f"))
	if a, err := e.v.Lookup(e.ctx, e.req(), dir, "f"); err != nil || a.Handle != g {
		e.Errorf("restored is %v, %v, want %v", a.Handle, err, g)
	}
	remove(e.req(), bin, "f") // for good
	_, err = e.v.GetAttr(e.ctx, e.req(), f)
	e.fails(err, volume.ErrStale)

	// A file that has another name does not go there.
	_, err = e.v.Link(e.ctx, e.req(), g, dir, "g")
	e.ok(err)
	remove(e.req(), dir, "g")
	has(dir, "f")

	// A tree, which one rename restores.
	tree := e.mkdir(dir, "tree", 0o755)
	sub := e.mkdir(tree, "sub", 0o750)
	leaf := e.file(sub, "leaf", 0o640)
	e.write(leaf, 0, "deep")
	other := e.mkdir(tree, "empty", 0o711)
	remove(e.req(), sub, "leaf")
	remove(e.req(), tree, "sub")
	remove(e.req(), tree, "empty")
	remove(e.req(), dir, "tree")
	e.ok(e.rename(bin, "tree", dir, "back"))
	has(dir, "f back")
	back, err := e.v.Lookup(e.ctx, e.req(), dir, "back")
	e.ok(err)
	has(back.Handle, "sub empty")
	at, err := e.v.Lookup(e.ctx, e.req(), back.Handle, "sub")
	e.ok(err)
	if at.Mode != 0o750 || back.Mode != 0o755 || back.Nlink != 4 || e.attr(dir).Nlink != 3 || e.attr(other).Mode != 0o711 {
		e.Errorf("restored with modes %o, %o and %d links, and %d above", at.Mode, back.Mode, back.Nlink, e.attr(dir).Nlink)
	}
	has(at.Handle, "leaf")
	e.file(at.Handle, "more", 0o600) // it is a directory as any other
	remove(e.req(), at.Handle, "leaf")
	has(trashOf(at.Handle), "leaf")
	remove(e.req(), at.Handle, "more")
	remove(e.req(), back.Handle, "sub")
	has(trashOf(back.Handle), "sub")

	// Who could remove something can restore it.
	shared := e.mkdir(volume.Root, "shared", 0o1777)
	c, err := e.v.Create(e.ctx, alice, shared, "hers", fileArgs(0o600))
	e.ok(err)
	remove(alice, shared, "hers")
	bin = trashOf(shared)
	_, _, err = e.v.Rename(e.ctx, bob, bin, "hers", shared, "his")
	e.fails(err, volume.ErrPerm)
	_, err = e.v.Remove(e.ctx, bob, bin, "hers")
	e.fails(err, volume.ErrPerm)
	_, _, err = e.v.Read(e.ctx, bob, c.Attr.Handle, 0, make([]byte, 1))
	e.fails(err, volume.ErrAccess)
	closed := uint32(0o700)
	_, err = e.v.SetAttr(e.ctx, e.req(), shared, volume.SetAttr{Mode: &closed})
	e.ok(err)
	_, _, err = e.v.ReadDir(e.ctx, alice, bin, 0, 1)
	e.fails(err, volume.ErrAccess)
	open := uint32(0o1777)
	_, err = e.v.SetAttr(e.ctx, e.req(), shared, volume.SetAttr{Mode: &open})
	e.ok(err)
	_, _, err = e.v.Rename(e.ctx, alice, bin, "hers", shared, "hers again")
	e.ok(err)
	has(shared, "hers again")
	has(bin, "")

	after, err := e.v.Space(e.ctx)
	e.ok(err)
	if after.FreeBytes >= before.FreeBytes || after.FreeInodes >= before.FreeInodes {
		e.Errorf("what is in the trash is not counted: %+v, before %+v", after, before)
	}
}
