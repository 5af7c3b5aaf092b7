// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// Kind is a kind of operation on a volume.
type Kind uint8

// The kinds of operations.
const (
	KindRead Kind = iota
	KindWrite
	KindCommit
	KindMetadata // all others
	Kinds        // their number
)

var kindNames = [Kinds]string{"read", "write", "commit", "metadata"}

func (k Kind) String() string { return kindNames[k] }

// KindOf returns the kind of an operation. ok is false for one that only says what the others are
// for.
func KindOf(op xdr.Op) (k Kind, ok bool) {
	switch op {
	case xdr.OP_READ:
		return KindRead, true
	case xdr.OP_WRITE:
		return KindWrite, true
	case xdr.OP_COMMIT:
		return KindCommit, true
	case xdr.OP_PUTFH, xdr.OP_GETFH, xdr.OP_SAVEFH, xdr.OP_RESTOREFH:
		return KindMetadata, false
	}
	return KindMetadata, true
}

// Activity is what a client has done with a volume since the gateway started.
type Activity struct {
	Client     string        `json:"client"` // its address
	Volume     string        `json:"volume"` // UUID
	Operations [Kinds]uint64 `json:"operations"`
	Errors     uint64        `json:"errors"`
	Read       uint64        `json:"read"`    // bytes
	Written    uint64        `json:"written"` // bytes
	Took       time.Duration `json:"took"`    // of all operations
}

// did counts what a guest did.
type did struct {
	operations            [Kinds]atomic.Uint64
	errors, read, written atomic.Uint64
	took                  atomic.Int64
}

func (d *did) count(op xdr.Op, st xdr.Status, took time.Duration, bytes int) {
	kind, ok := KindOf(op)
	if !ok {
		return
	}
	d.operations[kind].Add(1)
	d.took.Add(int64(took))
	switch {
	case failure(st):
		d.errors.Add(1)
	case kind == KindRead:
		d.read.Add(uint64(bytes))
	case kind == KindWrite:
		d.written.Add(uint64(bytes))
	}
}

// failure reports whether a status is no answer to what the client asked for.
func failure(st xdr.Status) bool {
	switch st {
	case xdr.NFS4ERR_IO, xdr.NFS4ERR_NOSPC, xdr.NFS4ERR_DQUOT, xdr.NFS4ERR_STALE, xdr.NFS4ERR_SERVERFAULT, xdr.NFS4ERR_DELAY:
		return true
	}
	return false
}

// Activity returns what each client has done with each volume, in the order of clients and volumes.
func (s *Server) Activity() (out []Activity) {
	s.guests.mu.Lock()
	defer s.guests.mu.Unlock()
	for key, g := range s.guests.present {
		a := Activity{Client: key.client.String(), Volume: key.volume.String(), Errors: g.did.errors.Load(), Read: g.did.read.Load(),
			Written: g.did.written.Load(), Took: time.Duration(g.did.took.Load())}
		for k := range a.Operations {
			a.Operations[k] = g.did.operations[k].Load()
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b Activity) int {
		return cmp.Or(cmp.Compare(a.Client, b.Client), cmp.Compare(a.Volume, b.Volume))
	})
	return out
}
