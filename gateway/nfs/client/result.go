// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// Error is an operation that the server refused. It wraps Status.
type Error struct {
	Op     xdr.Op
	Status xdr.Status
}

func (e *Error) Error() string { return fmt.Sprintf("nfs %s: %s", e.Op, e.Status) }

// Unwrap returns e.Status.
func (e *Error) Unwrap() error { return e.Status }

// Result is the answer to a COMPOUND, read one operation at a time. What it
// decodes aliases it until Free.
type Result struct {
	Status xdr.Status // of the last operation that was tried
	Tag    string
	Count  int    // operations that have a result, SEQUENCE included
	Flags  uint32 // SEQ4_STATUS_…, once SEQUENCE was read

	buf  *xdr.Buffer
	d    *xdr.Decoder
	read int
}

// readResult reads the head of a reply. It owns buf from then on.
func readResult(buf *xdr.Buffer) (*Result, error) {
	d := xdr.NewDecoder(buf.B)
	h := d.ReplyHeader()
	switch {
	case d.Err() != nil:
		return nil, fmt.Errorf("nfs reply: %w", d.Err())
	case h.Denied && h.Stat == xdr.AUTH_ERROR:
		return nil, fmt.Errorf("nfs call: server refuses the credential, auth_stat %d", h.AuthStat)
	case h.Denied:
		return nil, fmt.Errorf("nfs call: server speaks RPC versions %d to %d", h.Low, h.High)
	case h.Stat == xdr.PROG_MISMATCH:
		return nil, fmt.Errorf("nfs call: server speaks NFS versions %d to %d", h.Low, h.High)
	case h.Stat != xdr.SUCCESS:
		return nil, fmt.Errorf("nfs call: server answers accept_stat %d", h.Stat)
	}
	r := &Result{buf: buf, d: d}
	r.Status = xdr.Status(d.Uint32())
	r.Tag = d.String(xdr.NFS4_OPAQUE_LIMIT)
	r.Count = int(d.Uint32())
	if d.Err() != nil {
		return nil, fmt.Errorf("nfs reply: %w", d.Err())
	}
	return r, nil
}

// Next goes on to the next operation's result, which must be op's, and returns its
// decoder. If the operation failed, the error is an *Error, and the decoder is at the
// result's body for that status, as LOCK has one. The caller must have decoded the
// result before to its end.
func (r *Result) Next(op xdr.Op) (*xdr.Decoder, error) {
	if r.read == r.Count {
		return nil, fmt.Errorf("nfs reply: no result of %s: the server answered %d operations, the last with %s", op, r.Count, r.Status)
	}
	r.read++
	got, st := xdr.Op(r.d.Uint32()), xdr.Status(r.d.Uint32())
	if err := r.d.Err(); err != nil {
		return nil, fmt.Errorf("nfs reply: result of %s: %w", op, err)
	}
	if got != op && (got != xdr.OP_ILLEGAL || st != xdr.NFS4ERR_OP_ILLEGAL) {
		return nil, fmt.Errorf("nfs reply: result %d is of %s, want %s", r.read, got, op)
	}
	if st != xdr.NFS4_OK {
		return r.d, &Error{op, st}
	}
	return r.d, nil
}

// Free releases the reply's memory. Nothing that was decoded may be used after that.
func (r *Result) Free() {
	r.buf.Free()
	r.buf = nil
}

// skip passes over results without a body.
func (r *Result) skip(ops ...xdr.Op) error {
	for _, op := range ops {
		if _, err := r.Next(op); err != nil {
			return err
		}
	}
	return nil
}

// check reports whether the result of op was decoded without running out of bytes.
func (r *Result) check(op xdr.Op) error {
	if err := r.d.Err(); err != nil {
		return fmt.Errorf("nfs reply: result of %s: %w", op, err)
	}
	return nil
}

// sequence reads the result of SEQUENCE.
func (r *Result) sequence() error {
	d, err := r.Next(xdr.OP_SEQUENCE)
	if err != nil {
		return err
	}
	d.SessionID()
	for range 4 { // sequence number, slot, highest slot, target
		d.Uint32()
	}
	r.Flags = d.Uint32()
	return r.check(xdr.OP_SEQUENCE)
}

// Sequence reads the result of SEQUENCE, for DoSlot; Do has read it already.
func (r *Result) Sequence() error { return r.sequence() }

// fh reads the result of GETFH.
func (r *Result) fh() (FH, error) {
	d, err := r.Next(xdr.OP_GETFH)
	if err != nil {
		return "", err
	}
	h := FH(d.String(xdr.NFS4_FHSIZE))
	return h, r.check(xdr.OP_GETFH)
}

// attr reads the result of GETATTR.
func (r *Result) attr() (Attr, error) {
	d, err := r.Next(xdr.OP_GETATTR)
	if err != nil {
		return Attr{}, err
	}
	return decodeAttr(d)
}

// change reads a change_info4 of op.
func (r *Result) change(op xdr.Op) (xdr.ChangeInfo, error) {
	d, err := r.Next(op)
	if err != nil {
		return xdr.ChangeInfo{}, err
	}
	c := d.ChangeInfo()
	return c, r.check(op)
}
