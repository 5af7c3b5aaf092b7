// SPDX-License-Identifier: Apache-2.0

// Package volumetest is the conformance suite of volume.Volume. memvol, the engine
// and the gateway's router all pass it. The test of a further implementation is a
// call of Run.
//
// The suite provokes every outcome that the contract lists. It repeats every kind
// of change with the same OpID, before and after a restart. It compares random
// operations with memvol one by one. Where the contract leaves a choice (how coarse
// holes are, a directory's size, which times a change sets), the suite accepts every
// permitted answer.
package volumetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/volume"
)

// Subject is an implementation under test. The function that Run calls makes a
// fresh volume each time.
type Subject struct {
	// Open returns an empty volume, whose root directory user 0 owns. It is called
	// once. The test cleans up (t.Cleanup).
	Open func() volume.Volume
	// Restart crashes the volume and opens it again with what was durable. Run does
	// not use the former volume after that. If it is nil, Run leaves out the tests
	// that need it.
	Restart func() volume.Volume
	// Small returns another empty volume with room for about so many bytes of data;
	// at least a quarter of them must be usable. Nil if not supported.
	Small func(bytes uint64) volume.Volume
	// Trash returns another empty volume, which keeps what is removed in the trash. Nil if not
	// supported.
	Trash func() volume.Volume
	// SetReadOnly makes the volume refuse changes, or accept them again. Nil if not
	// supported.
	SetReadOnly func(on bool)
	// Tidy does what the volume otherwise does in the background. Nil if there is nothing.
	Tidy func()
	// Trails says that the volume's home may be elsewhere. Then Hold may succeed for
	// an inode that is gone already.
	Trails bool
}

// Run runs the whole suite. Each part gets its own Subject from subject.
func Run(t *testing.T, subject func(t *testing.T) Subject) {
	parts := []struct {
		name string
		run  func(*env)
	}{
		{"Create", testCreate},
		{"CreateModes", testCreateModes},
		{"Names", testNames},
		{"Remove", testRemove},
		{"Link", testLink},
		{"Symlink", testSymlink},
		{"Rename", testRename},
		{"RenamePermissions", testRenamePermissions},
		{"ReadDir", testReadDir},
		{"ReadDirWhileChanging", testReadDirWhileChanging},
		{"Attributes", testAttributes},
		{"SetAttrPermissions", testSetAttrPermissions},
		{"ChangeAttribute", testChangeAttribute},
		{"Permissions", testPermissions},
		{"ReadWrite", testReadWrite},
		{"DataLimits", testDataLimits},
		{"Sparse", testSparse},
		{"DataModel", testDataModel},
		{"Xattr", testXattr},
		{"Orphans", testOrphans},
		{"Stale", testStale},
		{"Locks", testLocks},
		{"Once", testOnce},
		{"OnceSlots", testOnceSlots},
		{"OnceAfterRestart", testOnceAfterRestart},
		{"Durable", testDurable},
		{"Unstable", testUnstable},
		{"Space", testSpace},
		{"Full", testFull},
		{"ReadOnly", testReadOnly},
		{"Concurrent", testConcurrent},
		{"ConcurrentOnce", testConcurrentOnce},
		{"Snapshots", testSnapshots},
		{"Rollback", testRollback},
		{"Trash", testTrash},
		{"Model", testModel},
	}
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			s := subject(t)
			p.run(&env{T: t, s: s, v: s.Open(), ctx: t.Context(), as: root})
		})
	}
}

// The callers of the tests. Group staff is alice's second one.
var (
	root  = volume.Caller{}
	alice = volume.Caller{UID: 1000, GID: 1000, Groups: []uint32{staff}}
	bob   = volume.Caller{UID: 1001, GID: 1001}
)

const staff = 2000

// env is one part of the suite with its volume and shorthands that fail the test.
type env struct {
	*testing.T
	s   Subject
	v   volume.Volume
	ctx context.Context
	as  volume.Caller // the caller of the shorthands
}

// sub runs a subtest in a directory of its own that everybody may change.
func (e *env) sub(name string, f func(e *env, dir volume.Handle)) {
	e.Helper()
	e.Run(name, func(t *testing.T) {
		inner := &env{T: t, s: e.s, v: e.v, ctx: t.Context(), as: root}
		f(inner, inner.workDir())
	})
}

// workDir makes a directory in the root that everybody may change.
func (e *env) workDir() volume.Handle {
	e.Helper()
	name := fmt.Sprintf("%.100s-%x", strings.ReplaceAll(e.Name(), "/", "."), rand.Uint64())
	c, err := e.v.Create(e.ctx, volume.Request{}, volume.Root, name, dirArgs(0o777))
	e.ok(err)
	return c.Attr.Handle
}

func (e *env) req() volume.Request { return volume.Request{Caller: e.as} }

// by returns e for another caller.
func (e *env) by(c volume.Caller) *env {
	other := *e
	other.as = c
	return &other
}

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("unexpected error: %v", err)
	}
}

// fails checks that the outcome of err is want.
func (e *env) fails(err, want error) {
	e.Helper()
	if got := outcome(err); got != want {
		e.Fatalf("outcome is %v, want %v", errorText(err), want)
	}
}

func errorText(err error) string {
	if err == nil {
		return "success"
	}
	return err.Error()
}

var outcomes = []error{
	volume.ErrNotExist, volume.ErrExist, volume.ErrNotDir, volume.ErrIsDir, volume.ErrNotEmpty,
	volume.ErrNameTooLong, volume.ErrInvalid, volume.ErrTooBig, volume.ErrTooManyLinks,
	volume.ErrNoSpace, volume.ErrReadOnly, volume.ErrAccess, volume.ErrPerm, volume.ErrStale,
	volume.ErrNoXattr, volume.ErrXattrTooBig, volume.ErrNoData, volume.ErrLocked, volume.ErrGrace,
	volume.ErrNoGrace, volume.ErrDelay, volume.ErrIO, volume.ErrUnknown,
}

// outcome returns the one Err value that err wraps; nil for nil. Anything else
// breaks the contract and is returned as an error that equals no outcome.
func outcome(err error) error {
	if err == nil {
		return nil
	}
	var found []error
	for _, o := range outcomes {
		if errors.Is(err, o) {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		return fmt.Errorf("%w wraps %d outcomes, want exactly one", err, len(found))
	}
	return found[0]
}

func ptr[T any](v T) *T { return &v }

func fileArgs(mode uint32) volume.CreateArgs {
	return volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded, Attr: volume.SetAttr{Mode: &mode}}
}

func dirArgs(mode uint32) volume.CreateArgs {
	return volume.CreateArgs{Type: volume.Directory, Mode: volume.Guarded, Attr: volume.SetAttr{Mode: &mode}}
}

func linkArgs(target string) volume.CreateArgs {
	return volume.CreateArgs{Type: volume.Symlink, Mode: volume.Guarded, Target: target}
}

func (e *env) create(dir volume.Handle, name string, args volume.CreateArgs) volume.Attr {
	e.Helper()
	c, err := e.v.Create(e.ctx, e.req(), dir, name, args)
	e.ok(err)
	return c.Attr
}

func (e *env) file(dir volume.Handle, name string, mode uint32) volume.Handle {
	e.Helper()
	return e.create(dir, name, fileArgs(mode)).Handle
}

func (e *env) mkdir(dir volume.Handle, name string, mode uint32) volume.Handle {
	e.Helper()
	return e.create(dir, name, dirArgs(mode)).Handle
}

func (e *env) attr(h volume.Handle) volume.Attr {
	e.Helper()
	a, err := e.v.GetAttr(e.ctx, e.req(), h)
	e.ok(err)
	return a
}

func (e *env) lookup(dir volume.Handle, name string) volume.Attr {
	e.Helper()
	a, err := e.v.Lookup(e.ctx, e.req(), dir, name)
	e.ok(err)
	return a
}

// gone checks that dir has no entry called name.
func (e *env) gone(dir volume.Handle, name string) {
	e.Helper()
	_, err := e.v.Lookup(e.ctx, e.req(), dir, name)
	e.fails(err, volume.ErrNotExist)
}

func (e *env) remove(dir volume.Handle, name string) {
	e.Helper()
	_, err := e.v.Remove(e.ctx, e.req(), dir, name)
	e.ok(err)
}

func (e *env) rename(from volume.Handle, name string, to volume.Handle, newName string) error {
	_, _, err := e.v.Rename(e.ctx, e.req(), from, name, to, newName)
	return err
}

func (e *env) setAttr(h volume.Handle, set volume.SetAttr) volume.Attr {
	e.Helper()
	a, err := e.v.SetAttr(e.ctx, e.req(), h, set)
	e.ok(err)
	return a
}

func (e *env) write(h volume.Handle, off uint64, data string) volume.Attr {
	e.Helper()
	w, err := e.v.Write(e.ctx, e.req(), h, off, []byte(data), true)
	e.ok(err)
	return w.Attr
}

// content reads all of h in pieces.
func (e *env) content(h volume.Handle) string {
	e.Helper()
	s, err := readAll(e.ctx, e.v, e.req(), h)
	e.ok(err)
	return s
}

func readAll(ctx context.Context, v volume.Volume, r volume.Request, h volume.Handle) (string, error) {
	var all []byte
	p := make([]byte, 128<<10)
	for {
		n, eof, err := v.Read(ctx, r, h, uint64(len(all)), p)
		if err != nil {
			return "", err
		}
		all = append(all, p[:n]...)
		if eof {
			return string(all), nil
		}
		if n == 0 {
			return "", fmt.Errorf("read of inode %d at %d returned nothing before the end", h.Ino, len(all))
		}
	}
}

// list returns all entries of dir, read limit at a time, and checks the order.
func (e *env) list(dir volume.Handle, limit int) []volume.Entry {
	e.Helper()
	entries, err := listAll(e.ctx, e.v, e.req(), dir, limit)
	e.ok(err)
	return entries
}

func listAll(ctx context.Context, v volume.Volume, r volume.Request, dir volume.Handle, limit int) ([]volume.Entry, error) {
	var all []volume.Entry
	var after uint64
	for {
		entries, eof, err := v.ReadDir(ctx, r, dir, after, limit)
		if err != nil {
			return nil, err
		}
		if len(entries) > limit {
			return nil, fmt.Errorf("readdir returned %d entries, at most %d were asked for", len(entries), limit)
		}
		for _, entry := range entries {
			if entry.Cookie <= after || entry.Cookie < 3 {
				return nil, fmt.Errorf("entry %q has cookie %d after cookie %d", entry.Name, entry.Cookie, after)
			}
			after = entry.Cookie
		}
		all = append(all, entries...)
		if eof {
			return all, nil
		}
		if len(entries) == 0 {
			return nil, errors.New("readdir returned no entry but not the end")
		}
	}
}

func names(entries []volume.Entry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.Name)
	}
	return out
}

// exact makes attributes comparable with ==.
func exact(a volume.Attr) volume.Attr {
	for _, t := range []*time.Time{&a.Atime, &a.Mtime, &a.Ctime, &a.Btime} {
		*t = t.Round(0).UTC()
	}
	return a
}
