// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/memvol"
)

// Example creates a file, writes it, reads it and renames it, and shows the
// outcome of each step.
func Example() {
	ctx := context.Background()
	var v volume.Volume = memvol.New(volume.ID{1})
	alice := volume.Request{Caller: volume.Caller{UID: 1000, GID: 1000}}

	// Create makes an inode and a name for it. From then on its handle names the
	// inode, whatever becomes of the name.
	mode := uint32(0o600)
	draft := volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded, Attr: volume.SetAttr{Mode: &mode}}
	created, err := v.Create(ctx, alice, volume.Root, "draft", draft)
	if err != nil {
		fmt.Println(err)
		return
	}
	file := created.Attr.Handle
	_, err = v.Create(ctx, alice, volume.Root, "draft", draft)
	fmt.Println("create again:", errors.Is(err, volume.ErrExist))

	// An unstable write is visible at once. It is safe when Commit returns the
	// Verifier that Write returned; with another one, the data is sent again.
	written, err := v.Write(ctx, alice, file, 0, []byte("hello"), false)
	if err != nil {
		fmt.Println(err)
		return
	}
	verifier, err := v.Commit(ctx, alice, file)
	fmt.Println("committed:", err == nil && verifier == written.Verifier)

	p := make([]byte, 100)
	n, eof, err := v.Read(ctx, alice, file, 0, p)
	fmt.Printf("read: %q, end of file: %v, error: %v\n", p[:n], eof, err)

	// Another user's read is refused: the mode is 0600.
	bob := volume.Request{Caller: volume.Caller{UID: 1001, GID: 1001}}
	_, _, err = v.Read(ctx, bob, file, 0, p)
	fmt.Println("read by another user:", errors.Is(err, volume.ErrAccess))

	// A change that carries an OpID is executed once. When a client did not get the
	// answer and sends the change again, it gets the recorded result.
	once := alice
	once.ID = volume.OpID{Slot: "alice's client, slot 0", Seq: 1}
	for range 2 {
		_, _, err = v.Rename(ctx, once, volume.Root, "draft", volume.Root, "letter")
		fmt.Println("rename:", err)
	}

	_, err = v.Lookup(ctx, alice, volume.Root, "draft")
	fmt.Println("the former name is gone:", errors.Is(err, volume.ErrNotExist))
	found, err := v.Lookup(ctx, alice, volume.Root, "letter")
	fmt.Println("the same inode:", err == nil && found.Handle == file)

	// Output:
	// create again: true
	// committed: true
	// read: "hello", end of file: true, error: <nil>
	// read by another user: true
	// rename: <nil>
	// rename: <nil>
	// the former name is gone: true
	// the same inode: true
}
