// SPDX-License-Identifier: Apache-2.0

package meta

import "github.com/weir-storage/weir/engine/segment"

// Operations returns the operations of rec on the keys: its resolved operations, and those that
// follow from its slot, sequence number, index and result. rec's blocks must have references. The
// result shares rec's memory.
func Operations(rec *segment.Record) []segment.Op {
	ops := rec.Resolved()
	if rec.Slot == "" {
		return ops
	}
	slot, result := SlotKey(rec.Slot), ResultKey(rec.Slot, rec.Index)
	return append(ops,
		segment.Op{Kind: segment.Set, Key: slot, Value: EncodeSeq(slot, rec.Seq)},
		segment.Op{Kind: segment.Set, Key: result, Value: EncodeResult(result, rec.Seq, rec.Result)},
	)
}
