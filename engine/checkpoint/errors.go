// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"fmt"
)

// ErrCorrupt matches every error about bytes that do not verify or do not parse, for errors.Is.
var ErrCorrupt = errors.New("checkpoint is corrupt")

// ObjectError says which object could not be read, written or verified. Whoever has another store
// heals the object from there (protocol-19). It wraps ErrCorrupt if the object's bytes are wrong,
// else the error of the store.
type ObjectError struct {
	Name string // of the object
	Err  error
}

func (e *ObjectError) Error() string { return fmt.Sprintf("checkpoint object %s: %v", e.Name, e.Err) }

// Unwrap returns Err.
func (e *ObjectError) Unwrap() error { return e.Err }

// corrupt returns an error that names what does not verify. why never has contents.
func corrupt(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrCorrupt, field, fmt.Sprintf(format, args...))
}

// about adds the name of an object to err.
func about(name string, err error) error {
	if err == nil {
		return nil
	}
	return &ObjectError{Name: name, Err: err}
}
