// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

const (
	modelBytes  = 8 // the last one means all bytes from there on
	modelFiles  = 1
	modelOwners = 2 // open-owners of a host, each with a lock-owner
)

// heldBytes has a lock-owner's lock on each byte: 0 none, 1 shared, 2 exclusive.
type heldBytes [modelBytes]int

// modelHost is a host with the opens and locks that it was granted.
type modelHost struct {
	*host
	verifier byte
	open     [modelFiles][modelOwners]*xdr.Stateid
	lock     [modelFiles][modelOwners]*xdr.Stateid
	held     [modelFiles][modelOwners]heldBytes
}

// lockModel compares the locks that clients were granted with those of the volume.
type lockModel struct {
	r     *rig
	hosts [2]*modelHost
	files [modelFiles][]byte
}

// TestLocksAreWhatClientsBelieve opens, closes, locks, frees, revokes and lets leases
// expire, while the volume is late to release locks. No client may get a lock that
// another one believes to have. In the end, the volume must have exactly the locks that
// the clients believe to have.
func TestLocksAreWhatClientsBelieve(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &lockModel{r: newRig(t)}
		defer m.r.stop()
		for i := range m.hosts {
			m.hosts[i] = &modelHost{host: m.r.host(fmt.Sprintf("10.0.0.%d", i+1)), verifier: 1}
		}
		for f := range m.files {
			m.files[f], _ = m.hosts[0].open0(fmt.Sprint("f", f))
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			h := m.hosts[rapid.IntRange(0, 1).Draw(rt, "host")]
			f, o := rapid.IntRange(0, modelFiles-1).Draw(rt, "file"), rapid.IntRange(0, modelOwners-1).Draw(rt, "owner")
			switch what := rapid.IntRange(0, 19).Draw(rt, "what"); {
			case what < 4:
				m.opens(h, f, o)
			case what < 6:
				m.closes(h, f, o)
			case what < 11:
				m.locks(rt, h, f, o)
			case what < 14:
				m.unlocks(rt, h, f, o)
			case what < 15:
				m.frees(h, f, o)
			case what < 16:
				m.revokes(h, f, o)
			case what < 18:
				m.late(rapid.IntRange(0, 3).Draw(rt, "late") > 0)
			case what < 19:
				m.settle(rt)
			default:
				m.expires(h)
			}
		}
		m.settle(rt)
	})
}

// open0 creates a file and closes it.
func (h *host) open0(name string) (fh []byte, id xdr.Stateid) {
	fh, id = h.open(name, 3, 0)
	h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_CLOSE, 0, id)).ok(xdr.OP_PUTFH).ok(xdr.OP_CLOSE)
	return fh, id
}

func (m *lockModel) opens(h *modelHost, f, o int) {
	id := h.in(openOp(fmt.Sprint("o", o), fmt.Sprint("f", f), 3, 0, noCreate...)).opened()
	id.Seqid = 0
	h.open[f][o] = &id
}

func (m *lockModel) closes(h *modelHost, f, o int) {
	if id := h.open[f][o]; id != nil {
		h.call(op(xdr.OP_PUTFH, m.files[f]), op(xdr.OP_CLOSE, 0, *id)).ok(xdr.OP_PUTFH).ok(xdr.OP_CLOSE)
		h.open[f][o], h.lock[f][o], h.held[f][o] = nil, nil, heldBytes{}
	}
}

// span draws a range: its first and last byte in the model, and offset and length.
func span(rt *rapid.T) (from, to int, off, n uint64) {
	from = rapid.IntRange(0, modelBytes-1).Draw(rt, "from")
	to = rapid.IntRange(from, modelBytes-1).Draw(rt, "to")
	if to == modelBytes-1 {
		return from, to, uint64(from), ^uint64(0)
	}
	return from, to, uint64(from), uint64(to - from + 1)
}

func (m *lockModel) locks(rt *rapid.T, h *modelHost, f, o int) {
	from, to, off, n := span(rt)
	kind := rapid.IntRange(1, 2).Draw(rt, "kind") // also xdr.READ_LT and WRITE_LT
	if h.open[f][o] == nil {
		return
	}
	request := lockOp(kind, false, off, n, *h.open[f][o], fmt.Sprint("l", o))
	if l := h.lock[f][o]; l != nil {
		request = op(xdr.OP_LOCK, kind, false, off, n, false, *l, 0)
	}
	a := h.call(op(xdr.OP_PUTFH, m.files[f]), request).ok(xdr.OP_PUTFH)
	switch st := a.result(xdr.OP_LOCK); st {
	case xdr.NFS4_OK:
	case xdr.NFS4ERR_DENIED, xdr.NFS4ERR_DELAY:
		return
	default:
		rt.Fatalf("lock: %v", st)
	}
	id := a.Stateid()
	id.Seqid = 0
	h.lock[f][o] = &id
	for b := from; b <= to; b++ {
		h.held[f][o][b] = kind
		for _, other := range m.hosts {
			for p := range modelOwners {
				if held := other.held[f][p][b]; (other != h || p != o) && held+kind > 2 && held != 0 {
					rt.Fatalf("byte %d of file %d is locked twice", b, f)
				}
			}
		}
	}
}

func (m *lockModel) unlocks(rt *rapid.T, h *modelHost, f, o int) {
	from, to, off, n := span(rt)
	l := h.lock[f][o]
	if l == nil {
		return
	}
	switch st := h.call(op(xdr.OP_PUTFH, m.files[f]), op(xdr.OP_LOCKU, 1, 0, *l, off, n)).ok(xdr.OP_PUTFH).result(xdr.OP_LOCKU); st {
	case xdr.NFS4_OK:
		for b := from; b <= to; b++ {
			h.held[f][o][b] = 0
		}
	case xdr.NFS4ERR_DELAY: // the volume is late
	default:
		rt.Fatalf("unlock: %v", st)
	}
}

func (m *lockModel) frees(h *modelHost, f, o int) {
	if l := h.lock[f][o]; l != nil && h.held[f][o] == (heldBytes{}) {
		h.call(op(xdr.OP_FREE_STATEID, *l)).ok(xdr.OP_FREE_STATEID)
		h.lock[f][o] = nil
	}
}

// revokes takes an owner's locks away. The client learns of it and frees the stateid.
func (m *lockModel) revokes(h *modelHost, f, o int) {
	l := h.lock[f][o]
	if m.r.revoke(h.host, m.files[f], fmt.Sprint("l", o)) != (l != nil) {
		m.r.t.Fatalf("revoking locks: the client has the stateid %v", l)
	}
	if l != nil {
		h.call(op(xdr.OP_FREE_STATEID, *l)).ok(xdr.OP_FREE_STATEID)
		h.lock[f][o], h.held[f][o] = nil, heldBytes{}
	}
}

// late makes the volume refuse to release locks, or accept it again.
func (m *lockModel) late(late bool) {
	m.r.setBefore(func(op string, _ volume.Handle) error {
		if late && op == "unlock" {
			return volume.ErrDelay
		}
		return nil
	})
}

// expires lets a lease end. The client then begins with a new client id.
func (m *lockModel) expires(h *modelHost) {
	for range 2 {
		m.r.clock.advance(6 * time.Second)
		for _, other := range m.hosts {
			if other != h {
				other.call()
			}
		}
	}
	m.r.srv.table.Sweep()
	h.verifier++
	id, seq, _ := h.exchangeID(0, "host "+h.addr, h.verifier)
	h.client, h.session = id, h.createSession(0, id, seq, testChannel)
	h.seq = [maxSlots]uint32{}
	h.call(op(xdr.OP_RECLAIM_COMPLETE, false)).ok(xdr.OP_RECLAIM_COMPLETE)
	*h = modelHost{host: h.host, verifier: h.verifier}
}

// settle waits until all ended locks are released, and compares.
func (m *lockModel) settle(rt *rapid.T) {
	m.late(false)
	for deadline := time.Now().Add(hang); ; {
		want, got := m.believed(), m.actual()
		if want == got {
			return
		}
		if time.Now().After(deadline) {
			rt.Fatalf("clients believe to hold\n%s\nthe volume holds\n%s", want, got)
		}
		for _, h := range m.hosts {
			h.call() // keeps the lease
		}
		m.r.clock.advance(releaseRetry)
	}
}

func (m *lockModel) believed() string {
	var all [modelFiles]map[string]heldBytes
	for f := range all {
		all[f] = map[string]heldBytes{}
		for _, h := range m.hosts {
			for o, held := range h.held[f] {
				if held != (heldBytes{}) {
					all[f][fmt.Sprintf("%x l%d", h.client, o)] = held
				}
			}
		}
	}
	return fmt.Sprint(all)
}

func (m *lockModel) actual() string {
	var all [modelFiles]map[string]heldBytes
	for f := range all {
		all[f] = map[string]heldBytes{}
	}
	for handle, list := range m.r.vol.Locks() {
		for f := range all {
			if _, h, _ := decodeHandle(m.files[f]); h != handle {
				continue
			}
			for _, l := range list {
				name := fmt.Sprintf("%x %s", l.Owner.Owner[:8], l.Owner.Owner[8:])
				name = trimZeros(name)
				held := all[f][name]
				for b := l.Start; b <= min(l.End, modelBytes-1); b++ {
					held[b] = 1
					if l.Exclusive {
						held[b] = 2
					}
				}
				all[f][name] = held
			}
		}
	}
	return fmt.Sprint(all)
}

// trimZeros formats a client id like a number.
func trimZeros(s string) string {
	for len(s) > 1 && s[0] == '0' {
		s = s[1:]
	}
	return s
}
