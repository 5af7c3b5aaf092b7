// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"errors"
	"strings"
)

// Outcomes of registry calls; compare with errors.Is.
var (
	// ErrNotFound: no such record.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the revision is not the current one. The change was definitely not applied; read
	// and decide anew.
	ErrConflict = errors.New("changed by someone else")
	// ErrUnknown: the change was sent and no answer came. It may have been applied, or may still
	// be; read it back.
	ErrUnknown = errors.New("outcome unknown")
	// ErrUnavailable: the registry did not answer. Nothing was changed; the call may be repeated.
	ErrUnavailable = errors.New("registry unavailable")
	// ErrAccess: the registry refused this caller.
	ErrAccess = errors.New("access refused by the registry")
	// ErrNameTaken: another volume, perhaps a deleted one that is not purged yet, has the name; or
	// another organization has the site, or another site the gateway.
	ErrNameTaken = errors.New("name taken")
	// ErrInvalid: the record breaks a rule. Nothing was sent.
	ErrInvalid = errors.New("invalid")
	// ErrVersion: the record was written by a newer release than this one.
	ErrVersion = errors.New("record is newer than this program")
	// ErrRewound: the registry is older than what was already seen (protocol-7).
	ErrRewound = errors.New("registry went back")
	// ErrForged: nobody who may write the record has signed it. Treat it as unknown.
	ErrForged = errors.New("record is not signed by who may write it")
)

// Error is what every registry call returns: operation, kind, name, what is wrong and what to do.
type Error struct {
	Op, Kind, Name string
	// Err is, or wraps, one of the package's outcomes.
	Err error
	// Detail says what is wrong and what to do; may be empty.
	Detail string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	for _, s := range []string{e.Kind, e.Name} {
		if s != "" {
			b.WriteByte(' ')
			b.WriteString(s)
		}
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	if e.Detail != "" {
		b.WriteString(": ")
		b.WriteString(e.Detail)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

func invalid(op, kind, name, detail string) error {
	return &Error{Op: op, Kind: kind, Name: name, Err: ErrInvalid, Detail: detail}
}
