// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"errors"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// stateid reads a stateid. It replaces the special stateid that means the current one
// (RFC 8881 section 16.2.3.1.2).
func (k *call) stateid() (xdr.Stateid, xdr.Status) {
	id := k.in.Stateid()
	switch id {
	case xdr.StateidCurrent:
		if !k.cur.hasID {
			return id, xdr.NFS4ERR_BAD_STATEID
		}
		return k.cur.id, xdr.NFS4_OK
	case xdr.StateidInvalid:
		return id, xdr.NFS4ERR_BAD_STATEID
	}
	return id, xdr.NFS4_OK
}

func (k *call) setStateid(id xdr.Stateid) { k.cur.id, k.cur.hasID = id, true }

// checkIO says whether id permits reading or writing the current file.
func (k *call) checkIO(id xdr.Stateid, access uint32) xdr.Status {
	switch id {
	case xdr.StateidAnonymous, xdr.StateidBypass:
		return k.s.table.CheckAnonymous(k.cur.key(), access, id == xdr.StateidBypass)
	}
	if id.Other == xdr.StateidAnonymous.Other || id.Other == xdr.StateidBypass.Other {
		return xdr.NFS4ERR_BAD_STATEID
	}
	return k.s.table.CheckIO(k.client, id, k.cur.key(), access)
}

// file says whether the current file handle can be read and written at all.
func (k *call) file() xdr.Status {
	switch {
	case !k.cur.set:
		return xdr.NFS4ERR_NOFILEHANDLE
	case k.cur.pseudo:
		return xdr.NFS4ERR_ISDIR
	}
	return xdr.NFS4_OK
}

// mayIO makes the checks that come before the content of the current file is read
// or written, and answers the first that fails (RFC 8881 sections 18.22.4 and
// 18.32.4, RFC 7862 sections 15.4.4 and 15.11.4):
//
//  1. the arguments decode: NFS4ERR_BADXDR;
//  2. the current file handle is that of a file in a volume: NFS4ERR_NOFILEHANDLE,
//     NFS4ERR_ISDIR;
//  3. the arguments make sense: argSt says what is wrong with the stateid or
//     another argument that decodes;
//  4. the stateid permits access, as checkIO says;
//  5. for writing, the client may change the volume: NFS4ERR_ROFS.
//
// access is OPEN4_SHARE_ACCESS_READ or OPEN4_SHARE_ACCESS_WRITE.
func (k *call) mayIO(id xdr.Stateid, argSt xdr.Status, access uint32) xdr.Status {
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	if st := k.file(); st != xdr.NFS4_OK {
		return st
	}
	if argSt != xdr.NFS4_OK {
		return argSt
	}
	if st := k.checkIO(id, access); st != xdr.NFS4_OK {
		return st
	}
	if access == xdr.OPEN4_SHARE_ACCESS_WRITE {
		return k.writable(k.cur)
	}
	return xdr.NFS4_OK
}

// ioStatus returns the answer to an error of reading or writing. If the file is not
// regular, the answer depends on its type.
func (k *call) ioStatus(err error) xdr.Status {
	if errors.Is(err, volume.ErrInvalid) {
		if a, aerr := k.cur.vol.GetAttr(k.ctx, k.read(), k.cur.h); aerr == nil {
			return fileStatus(a)
		}
	}
	return k.status(err)
}

// fileStatus says why a has no content to read or write. For a regular file it returns
// NFS4ERR_INVAL.
func fileStatus(a volume.Attr) xdr.Status {
	switch a.Type {
	case volume.Regular:
		return xdr.NFS4ERR_INVAL
	case volume.Directory:
		return xdr.NFS4ERR_ISDIR
	case volume.Symlink:
		return xdr.NFS4ERR_SYMLINK
	default:
		return xdr.NFS4ERR_WRONG_TYPE
	}
}

// readFile implements READ, RFC 8881 section 18.22. It reads the data into a pooled
// buffer, to which the reply refers.
func (k *call) readFile() xdr.Status {
	id, ist := k.stateid()
	off, count := k.in.Uint64(), k.in.Uint32()
	if st := k.mayIO(id, ist, xdr.OPEN4_SHARE_ACCESS_READ); st != xdr.NFS4_OK {
		return st
	}
	if off > volume.MaxSize {
		count, off = 0, volume.MaxSize
	}
	count = min(count, volume.MaxIO)
	if !k.roomFor(int(count)) {
		return xdr.NFS4ERR_DELAY
	}
	buf := xdr.NewBuffer(int(count))
	n, eof, err := k.cur.vol.Read(k.ctx, k.read(), k.cur.h, off, buf.B)
	if err != nil {
		buf.Free()
		return k.ioStatus(err)
	}
	k.bytes = n
	k.out.Bool(eof)
	if n < len(buf.B)/sparseReply {
		// Else many such reads in one request would keep a large buffer each.
		k.out.Opaque(buf.B[:n])
		buf.Free()
		return xdr.NFS4_OK
	}
	k.out.bufs = append(k.out.bufs, buf)
	k.out.OpaqueRef(buf.B[:n])
	return xdr.NFS4_OK
}

// A reply refers to a read buffer if at least one in sparseReply of its bytes is used.
// Else it copies the data.
const sparseReply = 4

// write implements WRITE, RFC 8881 section 18.32. The data aliases the request.
func (k *call) write() xdr.Status {
	id, ist := k.stateid()
	off, how := k.in.Uint64(), k.in.Uint32()
	data := k.in.Opaque(maxRecord)
	if how > xdr.FILE_SYNC4 {
		return xdr.NFS4ERR_BADXDR
	}
	if st := k.mayIO(id, ist, xdr.OPEN4_SHARE_ACCESS_WRITE); st != xdr.NFS4_OK {
		return st
	}
	if off > volume.MaxSize || uint64(len(data)) > volume.MaxSize-off {
		return xdr.NFS4ERR_FBIG
	}
	data = data[:min(len(data), volume.MaxIO)]
	stable := how != xdr.UNSTABLE4
	w, err := k.cur.vol.Write(k.ctx, k.change(0), k.cur.h, off, data, stable)
	if err != nil {
		return k.ioStatus(err)
	}
	k.bytes = len(data)
	k.out.Uint32(uint32(len(data)))
	if stable {
		k.out.Uint32(xdr.FILE_SYNC4)
	} else {
		k.out.Uint32(xdr.UNSTABLE4)
	}
	k.out.Verifier(w.Verifier)
	return xdr.NFS4_OK
}

// commit implements COMMIT, RFC 8881 section 18.3. It always commits the whole file.
func (k *call) commit() xdr.Status {
	off, count := k.in.Uint64(), k.in.Uint32()
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	if st := k.file(); st != xdr.NFS4_OK {
		return st
	}
	if off+uint64(count) < off {
		return xdr.NFS4ERR_INVAL
	}
	if st := k.writable(k.cur); st != xdr.NFS4_OK {
		return st
	}
	v, err := k.cur.vol.Commit(k.ctx, k.change(0), k.cur.h)
	if err != nil {
		return k.ioStatus(err)
	}
	k.out.Verifier(v)
	return xdr.NFS4_OK
}

// seek implements SEEK, RFC 7862 section 15.11.
func (k *call) seek() xdr.Status {
	id, ist := k.stateid()
	off, what := k.in.Uint64(), k.in.Uint32()
	if ist == xdr.NFS4_OK && what > xdr.NFS4_CONTENT_HOLE {
		ist = xdr.NFS4ERR_UNION_NOTSUPP
	}
	if st := k.mayIO(id, ist, xdr.OPEN4_SHARE_ACCESS_READ); st != xdr.NFS4_OK {
		return st
	}
	found, err := k.cur.vol.Seek(k.ctx, k.read(), k.cur.h, off, what == xdr.NFS4_CONTENT_HOLE)
	if err != nil {
		return k.ioStatus(err)
	}
	a, err := k.cur.vol.GetAttr(k.ctx, k.read(), k.cur.h)
	if err != nil {
		return k.status(err)
	}
	k.out.Bool(found >= a.Size)
	k.out.Uint64(found)
	return xdr.NFS4_OK
}

// deallocate implements DEALLOCATE, RFC 7862 section 15.4.
func (k *call) deallocate() xdr.Status {
	id, ist := k.stateid()
	off, n := k.in.Uint64(), k.in.Uint64()
	if st := k.mayIO(id, ist, xdr.OPEN4_SHARE_ACCESS_WRITE); st != xdr.NFS4_OK {
		return st
	}
	if n == 0 || off+n < off {
		return xdr.NFS4ERR_INVAL
	}
	if _, err := k.cur.vol.Punch(k.ctx, k.change(0), k.cur.h, off, n); err != nil {
		return k.ioStatus(err)
	}
	return xdr.NFS4_OK
}
