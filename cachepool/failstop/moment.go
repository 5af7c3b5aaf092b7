// SPDX-License-Identifier: Apache-2.0

package failstop

import (
	"context"
	"errors"
	"syscall"
)

// OfTheMoment reports whether a database may be well although it could not be opened: because of
// err, which the next attempt may not meet.
func OfTheMoment(err error) bool {
	for _, e := range []error{ErrUnderWay, syscall.EIO, syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE,
		syscall.ENOMEM, syscall.EROFS, syscall.EACCES, syscall.EPERM, syscall.ENXIO, syscall.ESTALE, context.Canceled} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
