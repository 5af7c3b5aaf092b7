// SPDX-License-Identifier: Apache-2.0

// Package records keeps the federation's records in any store of ordered keys with revisions,
// transactions, leases and watches. It has the rules once, so that federation/etcd and
// federation/memory differ only in the KV below. Keys and values are drawn in package federation.
package records

import (
	"context"
	"errors"
	"time"

	"github.com/weir-storage/weir/federation"
)

// ErrCompacted is what KV.Follow returns when the revision is no longer kept.
var ErrCompacted = errors.New("revision compacted")

// Pair is a key, its value and the revision that last changed it.
type Pair struct {
	Key      string
	Value    []byte
	Revision federation.Revision
	// Deleted pairs appear only in Follow; Revision is then that of the deletion.
	Deleted bool
	// Err says why the value does not count, which then is Raw.
	Err error
	Raw []byte
	// Hidden is set of a record that is there and is not shown to this organization.
	Hidden *federation.Elsewhere
	// Withheld: it is what is known of a record that is not shown.
	Withheld bool
}

// decode reads the record of a pair.
func (p Pair) decode(kind, name string, rec any) error {
	if p.Err != nil {
		return &federation.Error{Op: "read", Kind: kind, Name: name, Err: federation.ErrForged, Detail: p.Err.Error()}
	}
	return federation.Decode(kind, name, p.Value, rec)
}

// Read asks for one key, or with Prefix for all that begin with it.
type Read struct {
	Key    string
	Prefix bool
}

// Condition is that a key's revision is Revision; 0: that it does not exist. With Prefix it is that
// no key begins with it.
type Condition struct {
	Key      string
	Revision federation.Revision
	Prefix   bool
}

// Write puts a value, or with Delete removes the key, or with Delete and Prefix all that begin with
// it.
type Write struct {
	Key            string
	Value          []byte
	Delete, Prefix bool
	Verbatim       bool // the value is somebody else's word, and is written as it is
}

// KV is an ordered key-value store. Keys are relative to the federation's prefix. Errors are those
// of package federation; a Get never returns ErrUnknown.
type KV interface {
	// Get answers all reads at one revision, each in key order, and returns that revision. It is
	// linearizable.
	Get(ctx context.Context, reads ...Read) ([][]Pair, federation.Head, error)
	// Commit makes the writes at once if all conditions hold, and reports whether they did.
	// ErrUnknown: no answer came.
	Commit(ctx context.Context, conditions []Condition, writes []Write) (bool, federation.Head, error)
	// Follow calls fn with the changes after a revision, each revision's together and in order,
	// until ctx ends, fn fails, or the revision is no longer kept (ErrCompacted).
	Follow(ctx context.Context, after federation.Revision, fn func(federation.Head, []Pair) error) error
	// Lease keeps a key alive until it is stopped.
	Lease(ctx context.Context, key string, value []byte, ttl time.Duration) (federation.Heartbeat, error)
	// Close ends leases and follows.
	Close() error
}

// sealing is a KV that signs what is written, and can put back what somebody overwrote past the
// gatekeepers.
type sealing interface {
	Sealed(key string, value []byte) ([]byte, error)
	// Endorsed returns a value with this process's signature, instead of any that it has.
	Endorsed(key string, value []byte) ([]byte, error)
	// Lacks reports whether a value has no signature that would count, if a charter asked for one.
	Lacks(key string, value []byte, look func(key string) []byte) bool
	// Counts returns why a value does not count that somebody says was there. known is what is
	// known of the key, nil: nothing; look is for other keys, nil: what this process knows.
	Counts(key string, value, known []byte, look func(key string) []byte) error
	// Follows returns why a value does not count after another.
	Follows(key string, value, known []byte) error
	Heal(ctx context.Context) error
}
