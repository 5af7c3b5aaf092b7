// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"errors"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

var statuses = []struct {
	err    error
	status xdr.Status
}{
	{errPort, xdr.NFS4ERR_ACCESS},
	{errCertificate, xdr.NFS4ERR_ACCESS},
	{volume.ErrNotExist, xdr.NFS4ERR_NOENT},
	{volume.ErrExist, xdr.NFS4ERR_EXIST},
	{volume.ErrNotDir, xdr.NFS4ERR_NOTDIR},
	{volume.ErrIsDir, xdr.NFS4ERR_ISDIR},
	{volume.ErrNotEmpty, xdr.NFS4ERR_NOTEMPTY},
	{volume.ErrNameTooLong, xdr.NFS4ERR_NAMETOOLONG},
	{volume.ErrInvalid, xdr.NFS4ERR_INVAL},
	{volume.ErrTooBig, xdr.NFS4ERR_FBIG},
	{volume.ErrTooManyLinks, xdr.NFS4ERR_MLINK},
	{volume.ErrNoSpace, xdr.NFS4ERR_NOSPC},
	{volume.ErrReadOnly, xdr.NFS4ERR_ROFS},
	{volume.ErrAccess, xdr.NFS4ERR_ACCESS},
	{volume.ErrPerm, xdr.NFS4ERR_PERM},
	{volume.ErrStale, xdr.NFS4ERR_STALE},
	{volume.ErrNoXattr, xdr.NFS4ERR_NOXATTR},
	{volume.ErrXattrTooBig, xdr.NFS4ERR_XATTR2BIG},
	{volume.ErrNoData, xdr.NFS4ERR_NXIO},
	{volume.ErrLocked, xdr.NFS4ERR_DENIED},
	{volume.ErrGrace, xdr.NFS4ERR_GRACE},
	{volume.ErrNoGrace, xdr.NFS4ERR_NO_GRACE},
	{volume.ErrDelay, xdr.NFS4ERR_DELAY},
	{volume.ErrIO, xdr.NFS4ERR_IO},
	{ErrNotAdmitted, xdr.NFS4ERR_ACCESS},
	{ErrNoVolume, xdr.NFS4ERR_STALE},
}

// statusOf maps an outcome of a volume to NFS. known is false for
// volume.ErrUnknown, which has no answer, and for errors that no volume returns.
func statusOf(err error) (st xdr.Status, known bool) {
	if err == nil {
		return xdr.NFS4_OK, true
	}
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return s.status, true
		}
	}
	return xdr.NFS4ERR_SERVERFAULT, false
}
