// SPDX-License-Identifier: Apache-2.0

// Package store is the port to object stores: immutable objects by name.
//
// # Rules
//
//   - protocol-9: an object never changes. Its name holds the hash of its contents; a Put of a name
//     that exists is success when the size is the same and ErrConflict when not, and never replaces
//     anything. Replace is for what is damaged: the bytes that come are those that were there.
//   - protocol-14: stores have no fencing. Whoever deletes must know from the log that nobody
//     refers to the object.
//   - store-1: Put returns nil only when the object is durable, as far as the store promises that.
//   - store-2: a name is 1–512 bytes: parts of letters, digits, '.', '_' and '-', joined by '/',
//     none beginning with '.'. No name is the folder of another ("a" and "a/b"): stores that are
//     directories cannot have both.
//
// Implementations: store/s3, store/dir (development, one machine) and store/memory (tests). All
// pass store/storetest. Their methods may be called from many goroutines.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// Store has objects. Besides what they list, its methods return ErrAccess, ErrUnavailable and the
// context's error.
type Store interface {
	// Put creates the object of size bytes if it is absent; body is read from its start to its end,
	// perhaps more than once, and not after return. An object of the same size that is there
	// already is success; of another size: ErrConflict. A body of another length than size:
	// ErrInvalid.
	Put(ctx context.Context, name string, size int64, body io.ReadSeeker) error
	// GetRange reads the bytes [off, off+len(p)) into p, all of them. ErrNotExist; ErrShort when
	// the object ends before. After an error p's contents are undefined. An empty p is success and
	// asks nobody.
	GetRange(ctx context.Context, name string, off int64, p []byte) error
	// Stat describes one object. ErrNotExist.
	Stat(ctx context.Context, name string) (Info, error)
	// List calls fn for every object whose name begins with prefix (any string), in order of the
	// names' bytes, and stops at fn's first error, which it returns. Objects that come or go
	// meanwhile may be listed or not.
	List(ctx context.Context, prefix string, fn func(Info) error) error
	// Delete removes the object; one that is missing is no error.
	Delete(ctx context.Context, name string) error
}

// Replacer is a Store that puts an object in place of another at once: at no time is there none,
// also after a crash. s3, dir and memory are Replacers.
type Replacer interface {
	// Replace is Put, but for an object that is there already: the new one takes its place. After
	// an error either of the two may be there.
	Replace(ctx context.Context, name string, size int64, body io.ReadSeeker) error
}

// Replace puts an object in place of one that is damaged. The caller has verified body. A store
// that is no Replacer deletes what is there before; then there is nothing for a moment, or after an
// error.
func Replace(ctx context.Context, in Store, name string, size int64, body io.ReadSeeker) error {
	if r, ok := in.(Replacer); ok {
		return r.Replace(ctx, name, size, body)
	}
	if err := in.Delete(ctx, name); err != nil {
		return err
	}
	return in.Put(ctx, name, size, body)
}

// Info is what a store knows about an object.
type Info struct {
	Name     string
	Size     int64     // bytes
	Modified time.Time // by the store's clock
}

// Outcomes; compare with errors.Is.
var (
	// ErrNotExist: no such object.
	ErrNotExist = errors.New("no such object")
	// ErrShort: the object ends before the range does. Immutable objects do not grow: it is
	// damaged, or the wrong one.
	ErrShort = errors.New("object is too short")
	// ErrConflict: an object of that name and another size is there. One of the two is damaged.
	ErrConflict = errors.New("another object has the name")
	// ErrAccess: the store refused the keys. Repeating does not help.
	ErrAccess = errors.New("access refused")
	// ErrUnavailable: no answer, or one that asks to come back later. Repeat.
	ErrUnavailable = errors.New("store unavailable")
	// ErrInvalid: the call can never work.
	ErrInvalid = errors.New("invalid")
)

// Error is what stores return: operation, store and name, what is wrong and what to do.
type Error struct {
	Op string
	// Store says which store, such as "s3 http://127.0.0.1:7070 bucket weir"; Name is the object's.
	Store, Name string
	// Err is, or wraps, one of the package's outcomes.
	Err    error
	Detail string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Name != "" {
		b.WriteString(" object " + e.Name)
	}
	b.WriteString(" at " + e.Store + ": " + e.Err.Error())
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$`)

// CheckName checks an object's name; the error wraps ErrInvalid. Implementations call it first.
func CheckName(name string) error {
	if len(name) <= 512 && nameForm.MatchString(name) {
		return nil
	}
	return fmt.Errorf("object %q: %w name: use parts of letters, digits, '.', '_' and '-' joined by '/', none beginning with '.', 512 "+
		"bytes at most", name, ErrInvalid)
}
