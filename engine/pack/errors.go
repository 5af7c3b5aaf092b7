// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"errors"
	"fmt"
)

var (
	// ErrCorrupt matches every error about an object whose bytes do not verify or do not parse.
	ErrCorrupt = errors.New("object is corrupt")
	// ErrNoBlock is returned for a block that the object does not have. The object is whole: who
	// asks has a wrong reference, or asks the wrong object.
	ErrNoBlock = errors.New("no such block")
	// ErrTooLarge is returned by Build for more than fits into one pack. The caller leaves out the
	// last source. A single source that Choose chose always fits.
	ErrTooLarge = errors.New("pack too large")
)

// ObjectError says which pack or segment could not be read or verified. It wraps ErrCorrupt if the
// object's bytes are wrong: whoever has another store heals the object from there (protocol-19). It
// wraps ErrNoBlock if the object is whole, and does not have the block. Else it wraps the error of
// the reader or writer.
type ObjectError struct {
	Name string // of the object in a store
	Err  error
}

func (e *ObjectError) Error() string { return fmt.Sprintf("object %s: %v", e.Name, e.Err) }

// Unwrap returns Err.
func (e *ObjectError) Unwrap() error { return e.Err }

// corrupt returns an error that names what does not verify. why never has contents.
func corrupt(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrCorrupt, field, fmt.Sprintf(format, args...))
}

// noBlock returns an error about a block that is not there.
func noBlock(seq uint64, b Block, why string) error {
	return fmt.Errorf("%w: segment %d offset %d, %d bytes: %s", ErrNoBlock, seq, b.Off, b.Len, why)
}

// about adds the name of an object to err.
func about(name string, err error) error {
	if err == nil {
		return nil
	}
	return &ObjectError{Name: name, Err: err}
}
