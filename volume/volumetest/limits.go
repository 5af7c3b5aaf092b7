// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/weir-storage/weir/volume"
)

func testSpace(e *env) {
	s, err := e.v.Space(e.ctx)
	e.ok(err)
	if s.TotalBytes == 0 || s.FreeBytes > s.TotalBytes || s.TotalInodes == 0 || s.FreeInodes > s.TotalInodes {
		e.Errorf("an empty volume has %+v", s)
	}
}

// testFull fills a volume, and checks that it can be emptied again.
func testFull(e *env) {
	if e.s.Small == nil {
		return
	}
	const room = 8 << 20
	e.v = e.s.Small(room)
	work := e.workDir()
	data := make([]byte, 256<<10)
	noise := rand.NewChaCha8([32]byte{})
	var files []volume.Handle
	written := 0
	var err error
	for i := 0; err == nil; i++ {
		if written > 4*room {
			e.Fatalf("wrote %d bytes into a volume of %d", written, room)
		}
		var c volume.Created
		if c, err = e.v.Create(e.ctx, e.req(), work, fmt.Sprint(i), fileArgs(0o644)); err != nil {
			break
		}
		files = append(files, c.Attr.Handle)
		// Random data cannot be compressed or deduplicated.
		if _, err = noise.Read(data); err != nil {
			e.Fatal(err)
		}
		if _, err = e.v.Write(e.ctx, e.req(), c.Attr.Handle, 0, data, true); err == nil {
			written += len(data)
		}
	}
	e.fails(err, volume.ErrNoSpace)
	if written < room/4 {
		e.Errorf("only %d bytes fit into a volume of %d", written, room)
	}
	// An operation that frees space works on a full volume.
	_, err = e.v.Punch(e.ctx, e.req(), files[0], 0, 1000)
	e.ok(err)
	e.setAttr(files[1], volume.SetAttr{Size: ptr(uint64(0))})
	for _, entry := range e.list(work, 100) {
		e.remove(work, entry.Name)
	}
	// Space may come back later. Until then the only error is ErrNoSpace.
	c, err := e.v.Create(e.ctx, e.req(), work, "again", fileArgs(0o644))
	if err == nil {
		_, err = e.v.Write(e.ctx, e.req(), c.Attr.Handle, 0, data, true)
	}
	if err != nil && !errors.Is(err, volume.ErrNoSpace) {
		e.Errorf("writing again: %v", err)
	}
}

// testReadOnly checks that a read-only volume answers reads and refuses changes.
func testReadOnly(e *env) {
	if e.s.SetReadOnly == nil {
		return
	}
	work := e.workDir()
	p := e.place(work, "place")
	before := e.picture(work)
	e.s.SetReadOnly(true)
	for _, kind := range onceKinds {
		_, err := kind.do(e, e.req(), p)
		if got := outcome(err); got != volume.ErrReadOnly {
			e.Errorf("%s: outcome %v, want %v", kind.name, got, volume.ErrReadOnly)
		}
	}
	args := fileArgs(0o644)
	args.Mode = volume.Unchecked
	if c, err := e.v.Create(e.ctx, e.req(), p.sub, "f", args); err != nil || c.New {
		e.Errorf("opening an existing file: %+v, %v", c, err)
	}
	if after := e.picture(work); after != before {
		e.Errorf("a read-only volume changed:\n%s\nwas\n%s", after, before)
	}
	e.s.SetReadOnly(false)
	e.file(work, "again", 0o644)
}
