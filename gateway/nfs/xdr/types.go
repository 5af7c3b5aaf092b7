// SPDX-License-Identifier: Apache-2.0

package xdr

import (
	"errors"
	"time"
)

// ErrBadTime says that a time has nanoseconds of a second or more.
var ErrBadTime = errors.New("xdr: nanoseconds of a second or more")

// Stateid is a stateid4 (RFC 8881 section 3.3.12).
type Stateid struct {
	Seqid uint32
	Other [12]byte
}

// The special stateids of RFC 8881 section 8.2.3.
var (
	StateidAnonymous = Stateid{}
	StateidBypass    = Stateid{Seqid: ^uint32(0), Other: [12]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}}
	StateidCurrent   = Stateid{Seqid: 1}
	StateidInvalid   = Stateid{Seqid: ^uint32(0)}
)

// Stateid reads a stateid4.
func (d *Decoder) Stateid() Stateid {
	s := Stateid{Seqid: d.Uint32()}
	copy(s.Other[:], d.fixed(12))
	return s
}

// Stateid appends a stateid4.
func (e *Encoder) Stateid(s Stateid) {
	e.Uint32(s.Seqid)
	e.fixed(s.Other[:])
}

// SessionID is a sessionid4.
type SessionID [16]byte

// SessionID reads a sessionid4.
func (d *Decoder) SessionID() (id SessionID) {
	copy(id[:], d.fixed(len(id)))
	return id
}

// SessionID appends a sessionid4.
func (e *Encoder) SessionID(id SessionID) { e.fixed(id[:]) }

// Verifier reads a verifier4.
func (d *Decoder) Verifier() (v [8]byte) {
	copy(v[:], d.fixed(len(v)))
	return v
}

// Verifier appends a verifier4.
func (e *Encoder) Verifier(v [8]byte) { e.fixed(v[:]) }

// Time reads an nfstime4. Nanoseconds of a second or more are an error.
func (d *Decoder) Time() time.Time {
	sec, nsec := d.Int64(), d.Uint32()
	if d.err != nil {
		return time.Time{}
	}
	if nsec >= 1e9 {
		d.Fail(ErrBadTime)
		return time.Time{}
	}
	return time.Unix(sec, int64(nsec))
}

// Time appends an nfstime4.
func (e *Encoder) Time(t time.Time) {
	e.Int64(t.Unix())
	e.Uint32(uint32(t.Nanosecond()))
}

// ChangeInfo is a change_info4.
type ChangeInfo struct {
	Atomic        bool
	Before, After uint64
}

// ChangeInfo reads a change_info4.
func (d *Decoder) ChangeInfo() ChangeInfo {
	return ChangeInfo{d.Bool(), d.Uint64(), d.Uint64()}
}

// ChangeInfo appends a change_info4.
func (e *Encoder) ChangeInfo(c ChangeInfo) {
	e.Bool(c.Atomic)
	e.Uint64(c.Before)
	e.Uint64(c.After)
}

// ChannelAttrs is a channel_attrs4 (RFC 8881 section 18.36.1), sizes in bytes.
type ChannelAttrs struct {
	HeaderPadSize         uint32
	MaxRequestSize        uint32
	MaxResponseSize       uint32
	MaxResponseSizeCached uint32
	MaxOperations         uint32
	MaxRequests           uint32
}

// ChannelAttrs reads a channel_attrs4; RDMA parameters are skipped.
func (d *Decoder) ChannelAttrs() ChannelAttrs {
	a := ChannelAttrs{d.Uint32(), d.Uint32(), d.Uint32(), d.Uint32(), d.Uint32(), d.Uint32()}
	for range d.Count(1, 4) {
		d.Uint32()
	}
	return a
}

// ChannelAttrs appends a channel_attrs4 without RDMA parameters.
func (e *Encoder) ChannelAttrs(a ChannelAttrs) {
	for _, v := range []uint32{a.HeaderPadSize, a.MaxRequestSize, a.MaxResponseSize,
		a.MaxResponseSizeCached, a.MaxOperations, a.MaxRequests, 0} {
		e.Uint32(v)
	}
}
