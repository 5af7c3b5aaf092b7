// SPDX-License-Identifier: Apache-2.0

package client

import (
	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// Compound is a COMPOUND that is being put together. Its methods append an
// operation and return it. Data that is passed in is encoded when the compound
// is sent, and must not change until then.
type Compound struct {
	tag   string
	cache bool
	ops   []operation
}

type operation struct {
	op   xdr.Op
	args func(*xdr.Encoder) // nil: none
}

// FH is a file handle, at most 128 bytes.
type FH string

// NewCompound returns an empty compound.
func NewCompound() *Compound { return &Compound{} }

// Tag sets the tag, which the server echoes.
func (p *Compound) Tag(tag string) *Compound { p.tag = tag; return p }

// Cache asks the server to keep the whole reply for a repeat (sa_cachethis).
func (p *Compound) Cache() *Compound { p.cache = true; return p }

// Add appends any operation; args appends its arguments and may be nil.
func (p *Compound) Add(op xdr.Op, args func(*xdr.Encoder)) *Compound {
	p.ops = append(p.ops, operation{op, args})
	return p
}

// PutRootFH appends PUTROOTFH.
func (p *Compound) PutRootFH() *Compound { return p.Add(xdr.OP_PUTROOTFH, nil) }

// PutFH appends PUTFH.
func (p *Compound) PutFH(h FH) *Compound {
	return p.Add(xdr.OP_PUTFH, func(e *xdr.Encoder) { e.String(string(h)) })
}

// GetFH appends GETFH.
func (p *Compound) GetFH() *Compound { return p.Add(xdr.OP_GETFH, nil) }

// SaveFH appends SAVEFH.
func (p *Compound) SaveFH() *Compound { return p.Add(xdr.OP_SAVEFH, nil) }

// RestoreFH appends RESTOREFH.
func (p *Compound) RestoreFH() *Compound { return p.Add(xdr.OP_RESTOREFH, nil) }

// Lookup appends LOOKUP.
func (p *Compound) Lookup(name string) *Compound {
	return p.Add(xdr.OP_LOOKUP, func(e *xdr.Encoder) { e.String(name) })
}

// LookupParent appends LOOKUPP.
func (p *Compound) LookupParent() *Compound { return p.Add(xdr.OP_LOOKUPP, nil) }

// GetAttr appends GETATTR.
func (p *Compound) GetAttr(mask xdr.Bitmap) *Compound {
	return p.Add(xdr.OP_GETATTR, func(e *xdr.Encoder) { e.Bitmap(mask) })
}

// Remove appends REMOVE.
func (p *Compound) Remove(name string) *Compound {
	return p.Add(xdr.OP_REMOVE, func(e *xdr.Encoder) { e.String(name) })
}

// Rename appends RENAME, from the saved to the current directory.
func (p *Compound) Rename(from, to string) *Compound {
	return p.Add(xdr.OP_RENAME, func(e *xdr.Encoder) { e.String(from); e.String(to) })
}

// Link appends LINK, of the saved file into the current directory.
func (p *Compound) Link(name string) *Compound {
	return p.Add(xdr.OP_LINK, func(e *xdr.Encoder) { e.String(name) })
}

// Read appends READ.
func (p *Compound) Read(id xdr.Stateid, off uint64, n uint32) *Compound {
	return p.Add(xdr.OP_READ, func(e *xdr.Encoder) {
		e.Stateid(id)
		e.Uint64(off)
		e.Uint32(n)
	})
}

// Write appends WRITE; how is xdr.UNSTABLE4, DATA_SYNC4 or FILE_SYNC4.
func (p *Compound) Write(id xdr.Stateid, off uint64, data []byte, how uint32) *Compound {
	return p.Add(xdr.OP_WRITE, func(e *xdr.Encoder) {
		e.Stateid(id)
		e.Uint64(off)
		e.Uint32(how)
		e.OpaqueRef(data)
	})
}

// names returns the operations.
func (p *Compound) names() []xdr.Op {
	out := make([]xdr.Op, len(p.ops))
	for i, o := range p.ops {
		out[i] = o.op
	}
	return out
}

// sequence are the arguments of SEQUENCE.
type sequence struct {
	session            xdr.SessionID
	seq, slot, highest uint32
}

// message encodes a call of p, with SEQUENCE in front if s is not nil.
func (c *Client) message(p *Compound, s *sequence) *call {
	call := c.t.begin()
	var cred xdr.Encoder
	cred.AuthSys(c.cred)
	e := xdr.NewEncoder(make([]byte, 0, 512))
	e.CallHeader(xdr.CallHeader{
		XID: call.xid, Program: xdr.NFS4_PROGRAM, Version: xdr.NFS_V4, Procedure: xdr.NFSPROC4_CMPND,
		Cred: xdr.OpaqueAuth{Flavor: xdr.AUTH_SYS, Body: cred.Bytes()},
	})
	e.String(p.tag)
	e.Uint32(c.opts.Minor)
	count := len(p.ops)
	if s != nil {
		count++
	}
	e.Uint32(uint32(count))
	if s != nil {
		e.Uint32(uint32(xdr.OP_SEQUENCE))
		e.SessionID(s.session)
		e.Uint32(s.seq)
		e.Uint32(s.slot)
		e.Uint32(s.highest)
		e.Bool(p.cache)
	}
	for _, o := range p.ops {
		e.Uint32(uint32(o.op))
		if o.args != nil {
			o.args(e)
		}
	}
	call.msg = e
	return call
}
