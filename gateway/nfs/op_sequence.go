// SPDX-License-Identifier: Apache-2.0

package nfs

import "github.com/weir-storage/weir/gateway/nfs/xdr"

// sequence implements SEQUENCE, RFC 8881 section 18.46. It sets the call's session and
// limits, or finds the reply of a repeated request. It waits while an equal request is
// being executed. An error leaves the slot as it was.
func (k *call) sequence() xdr.Status {
	id := k.in.SessionID()
	seq, slot, highest := k.in.Uint32(), k.in.Uint32(), k.in.Uint32()
	cache := k.in.Bool()
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	s := k.s.table.Session(id)
	switch {
	case s == nil:
		return xdr.NFS4ERR_BADSESSION
	case k.size > int(s.Fore.MaxRequestSize):
		return xdr.NFS4ERR_REQ_TOO_BIG
	case k.count > s.Fore.MaxOperations:
		return xdr.NFS4ERR_TOO_MANY_OPS
	}
	k.cache = cache
	k.uncached, k.cachedLimit = int(s.Fore.MaxResponseSize), int(s.Fore.MaxResponseSizeCached)
	k.limit = k.uncached
	if cache {
		k.limit = min(k.limit, k.cachedLimit)
	}
	if k.out.Len()-k.base+sequenceResult > k.limit {
		return k.tooBig() // before the slot is used
	}
	begin := k.s.table.Begin
	if k.later {
		begin = k.s.table.BeginAtOnce
	}
	use, repeat, st := begin(id, k.conn.name, slot, seq, highest, k.fingerprint())
	if use == nil {
		k.repeat = repeat
		return st
	}
	k.use, k.client, k.slot = use, s.Client, use.Name()
	if k.conn.session.Load() != s {
		k.conn.session.Store(s)
	}

	k.out.SessionID(id)
	k.out.Uint32(seq)
	k.out.Uint32(slot)
	k.out.Uint32(s.Fore.MaxRequests - 1) // highest slot
	k.out.Uint32(s.Fore.MaxRequests - 1) // target
	k.flags = k.out.Mark()
	k.out.Uint32(0) // patched when the reply is complete
	return xdr.NFS4_OK
}

// sequenceResult is the length of SEQUENCE's result after its status.
const sequenceResult = 36
