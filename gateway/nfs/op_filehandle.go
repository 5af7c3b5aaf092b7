// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"encoding/binary"
	"errors"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

const (
	handleVersion = 1
	handleSize    = 1 + 16 + 4 + 8 + 8
)

// encodeHandle returns a file handle (nfs-1): version ‖ volume id ‖ snapshot (0: the present) ‖
// inode ‖ generation. The pseudo root is inode 1 of the zero volume.
func encodeHandle(p place) []byte {
	b := make([]byte, 0, handleSize)
	b = append(b, handleVersion)
	if p.pseudo {
		p.export.ID, p.h = volume.ID{}, volume.Root
	}
	b = append(b, p.export.ID[:]...)
	b = binary.BigEndian.AppendUint32(b, p.h.Snap)
	b = binary.BigEndian.AppendUint64(b, p.h.Ino)
	return binary.BigEndian.AppendUint64(b, p.h.Gen)
}

// decodeHandle reads a file handle. ok is false for one that no server made.
func decodeHandle(b []byte) (id volume.ID, h volume.Handle, ok bool) {
	if len(b) != handleSize || b[0] != handleVersion {
		return id, h, false
	}
	copy(id[:], b[1:])
	h.Snap = binary.BigEndian.Uint32(b[17:])
	h.Ino, h.Gen = binary.BigEndian.Uint64(b[21:]), binary.BigEndian.Uint64(b[29:])
	return id, h, id != volume.ID{} || h == volume.Root
}

// putRootFH implements PUTROOTFH and PUTPUBFH.
func (k *call) putRootFH() xdr.Status {
	k.cur = place{set: true, pseudo: true}
	return xdr.NFS4_OK
}

// putFH implements PUTFH, RFC 8881 section 18.19. It asks Exports each time whether the
// client is admitted.
func (k *call) putFH() xdr.Status {
	b := k.in.Opaque(xdr.NFS4_FHSIZE)
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	id, h, ok := decodeHandle(b)
	if !ok {
		return xdr.NFS4ERR_BADHANDLE
	}
	if id == (volume.ID{}) {
		return k.putRootFH()
	}
	return k.enter(id, h)
}

// enter makes h of volume id the current file handle, if the client is admitted. Only
// CLOSE may follow without admission: its answer says that the open was revoked, and
// so the client frees the stateid, which the server remembers until then.
func (k *call) enter(id volume.ID, h volume.Handle) xdr.Status {
	g := k.visit(id)
	if !k.share(g) {
		k.s.refusedFor[Slots].Add(1)
		k.refused, k.busy = id, true
		return xdr.NFS4ERR_DELAY
	}
	v, x, err := k.s.cfg.Exports.Open(k.conn.addr, id)
	ending := false
	if err == nil {
		err = x.admits(k.conn)
		if next := k.next(); err != nil && (next == xdr.OP_CLOSE || next == xdr.OP_LOCKU) {
			ending, err = true, nil
		}
	}
	if err != nil {
		g.refused, k.refused = true, id
		k.s.refuse(k.conn.addr, id.String(), err)
		if errors.Is(err, ErrNotAdmitted) && k.next() == xdr.OP_CLOSE {
			k.cur = place{set: true, export: Export{ID: id}, h: h} // closeFile takes it
			return xdr.NFS4_OK
		}
		return k.status(err)
	}
	k.cur = place{set: true, vol: v, export: x, guest: g.guest, h: h, ending: ending}
	if d := k.doing.Load(); d == nil || d.volume != x.Name {
		k.doing.Store(&doing{x.Name, k.s.cfg.Clock.Now()})
	}
	return xdr.NFS4_OK
}

// getFH implements GETFH.
func (k *call) getFH() xdr.Status {
	if !k.cur.set {
		return xdr.NFS4ERR_NOFILEHANDLE
	}
	k.out.Opaque(encodeHandle(k.cur))
	return xdr.NFS4_OK
}

// saveFH implements SAVEFH.
func (k *call) saveFH() xdr.Status {
	if !k.cur.set {
		return xdr.NFS4ERR_NOFILEHANDLE
	}
	k.saved = k.cur
	return xdr.NFS4_OK
}

// restoreFH implements RESTOREFH.
func (k *call) restoreFH() xdr.Status {
	if !k.saved.set {
		return xdr.NFS4ERR_NOFILEHANDLE
	}
	k.cur = k.saved
	return xdr.NFS4_OK
}

// checkName says what is wrong with a path component, RFC 8881 section 14.5.
func checkName(name string) xdr.Status {
	switch {
	case name == "":
		return xdr.NFS4ERR_INVAL
	case name == "." || name == "..":
		return xdr.NFS4ERR_BADNAME
	case volume.CheckName(name) == nil:
		return xdr.NFS4_OK
	case len(name) > volume.MaxName:
		return xdr.NFS4ERR_NAMETOOLONG
	default:
		return xdr.NFS4ERR_BADCHAR
	}
}

// maxString bounds names and other strings while decoding. checkName refuses names that
// are shorter than that and still too long.
const maxString = 16 << 10

// lookup implements LOOKUP, RFC 8881 section 18.13. From the pseudo root it leads into a
// volume.
func (k *call) lookup() xdr.Status {
	name := k.in.String(maxString)
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	if !k.cur.set {
		return xdr.NFS4ERR_NOFILEHANDLE
	}
	return k.walk(name)
}

func (k *call) walk(name string) xdr.Status {
	if k.cur.pseudo {
		if st := checkName(name); st != xdr.NFS4_OK {
			return st
		}
		for _, x := range k.s.cfg.Exports.Exports(k.conn.addr) {
			if x.Name == name {
				return k.enter(x.ID, volume.Root)
			}
		}
		k.s.refuse(k.conn.addr, name, k.s.cfg.Exports.Named(name))
		return xdr.NFS4ERR_NOENT
	}
	if st := checkName(name); st != xdr.NFS4_OK {
		if kind := k.notDirectory(); kind != xdr.NFS4_OK {
			return kind
		}
		return st
	}
	a, err := k.cur.vol.Lookup(k.ctx, k.read(), k.cur.h, k.named(name))
	if err != nil {
		return k.dirStatus(err)
	}
	k.found(name, a.Handle)
	return xdr.NFS4_OK
}

// dirStatus returns the answer to an error of an operation on the current directory. If
// that is no directory, a symbolic link has an answer of its own.
func (k *call) dirStatus(err error) xdr.Status {
	st := k.status(err)
	if st == xdr.NFS4ERR_NOTDIR {
		if kind := k.notDirectory(); kind != xdr.NFS4_OK {
			return kind
		}
	}
	return st
}

// notDirectory returns what is wrong if the current file handle is no directory.
func (k *call) notDirectory() xdr.Status {
	if k.cur.pseudo {
		return xdr.NFS4_OK
	}
	a, err := k.cur.vol.GetAttr(k.ctx, k.read(), k.cur.h)
	switch {
	case err != nil:
		return k.status(err)
	case a.Type == volume.Symlink:
		return xdr.NFS4ERR_SYMLINK
	case a.Type != volume.Directory:
		return xdr.NFS4ERR_NOTDIR
	}
	return xdr.NFS4_OK
}

// lookupParent implements LOOKUPP. The parent of a volume's root is the pseudo root.
func (k *call) lookupParent() xdr.Status {
	switch {
	case !k.cur.set:
		return xdr.NFS4ERR_NOFILEHANDLE
	case k.cur.pseudo:
		return xdr.NFS4ERR_NOENT
	case k.cur.h == volume.Root:
		return k.putRootFH()
	}
	a, err := k.cur.vol.Lookup(k.ctx, k.read(), k.cur.h, "..")
	if err != nil {
		return k.dirStatus(err)
	}
	k.cur = k.cur.at(a.Handle)
	return xdr.NFS4_OK
}

// secinfo implements SECINFO. It consumes the current file handle.
func (k *call) secinfo() xdr.Status {
	name := k.in.String(maxString)
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	if !k.cur.set {
		return xdr.NFS4ERR_NOFILEHANDLE
	}
	if st := k.walk(name); st != xdr.NFS4_OK {
		return st
	}
	return k.flavors()
}

// secinfoNoName implements SECINFO_NO_NAME. It consumes the current file handle.
func (k *call) secinfoNoName() xdr.Status {
	style := k.in.Uint32()
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	switch {
	case !k.cur.set:
		return xdr.NFS4ERR_NOFILEHANDLE
	case style > xdr.SECINFO_STYLE4_PARENT:
		return xdr.NFS4ERR_BADXDR
	case style == xdr.SECINFO_STYLE4_PARENT:
		if st := k.lookupParent(); st != xdr.NFS4_OK {
			return st
		}
	}
	return k.flavors()
}

func (k *call) flavors() xdr.Status {
	k.cur = place{}
	k.out.Uint32(1)
	k.out.Uint32(xdr.AUTH_SYS)
	return xdr.NFS4_OK
}
