// SPDX-License-Identifier: Apache-2.0

package log

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/weir-storage/weir/cachepool"
)

// loansName is an empty file beside the log. While it is there, a home that begins its next epoch
// waits for leases of which it does not know (protocol-26).
const (
	loansName = "loans"
	loansTemp = "loans.tmp"
)

// NoteLoans makes durable that leases may be lent to gateways without a copy. It does nothing if
// that is so already. Only the replica's event loop calls it and ForgetLoans.
func (l *Log) NoteLoans() error {
	if l.loans.Load() {
		return nil
	}
	if err := cachepool.Replace(l.cfg.Dir, loansTemp, loansName, nil); err != nil {
		return fmt.Errorf("note in %s that leases are lent: %w", l.cfg.Dir.Path(), err)
	}
	l.loans.Store(true)
	return nil
}

// ForgetLoans undoes NoteLoans: all leases have ended.
func (l *Log) ForgetLoans() error {
	if !l.loans.Load() {
		return nil
	}
	if err := l.cfg.Dir.Remove(loansName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("note in %s that no lease is lent: %w", l.cfg.Dir.Path(), err)
	}
	l.loans.Store(false)
	return nil
}

// Loans reports whether leases may be lent to gateways without a copy, by this process or an
// earlier one.
func (l *Log) Loans() bool { return l.loans.Load() }

// findLoans reads what NoteLoans noted.
func (l *Log) findLoans(files []cachepool.FileInfo) {
	for _, f := range files {
		if f.Name == loansName {
			l.loans.Store(true)
		}
	}
}
