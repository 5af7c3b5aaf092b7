// SPDX-License-Identifier: Apache-2.0

package client

import (
	"testing"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// FuzzAttr decodes arbitrary bytes as the attributes in a server's answer.
func FuzzAttr(f *testing.F) {
	var e xdr.Encoder
	e.Bitmap(xdr.NewBitmap(xdr.FATTR4_TYPE, xdr.FATTR4_SIZE))
	e.Opaque([]byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9})
	f.Add(e.Bytes())
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = decodeAttr(xdr.NewDecoder(b))
	})
}
