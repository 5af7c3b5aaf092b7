// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"bufio"
	"errors"
	"net"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// asksForTLS reports whether a request is the probe with which a client asks for TLS: a NULL call
// whose credential is AUTH_TLS (RFC 9289 section 4.1).
func asksForTLS(record []byte) (xid uint32, ok bool) {
	d := xdr.NewDecoder(record)
	h := d.CallHeader()
	return h.XID, d.Err() == nil && h.RPCVersion == xdr.RPC_VERSION && h.Program == xdr.NFS4_PROGRAM && h.Version == xdr.NFS_V4 &&
		h.Procedure == xdr.NFSPROC4_NULL && h.Cred.Flavor == xdr.AUTH_TLS
}

// errEarly: what was sent in the clear must not count as sent under TLS.
var errEarly = errors.New("the client sent more before it was told to begin TLS")

// startTLS agrees to TLS, and returns the connection on which all that follows is sent. It is
// called before anything else was answered.
func (c *conn) startTLS(xid uint32, r *bufio.Reader) (net.Conn, error) {
	if r.Buffered() > 0 {
		return nil, errEarly
	}
	var e xdr.Encoder
	e.StartTLSHeader(xid)
	if err := xdr.WriteRecord(c.nc, &e); err != nil {
		return nil, err
	}
	secured, certificate, err := c.s.cfg.StartTLS(c.s.ctx, c.nc)
	if err != nil {
		return nil, err
	}
	w := bufio.NewWriterSize(secured, readBuffer) // a record of TLS for each piece would be many
	c.write.Lock()
	c.out, c.flush, c.certificate = w, w.Flush, certificate
	c.write.Unlock()
	return secured, nil
}

// notSecured logs why a client's connection did not become one of TLS.
func (c *conn) notSecured(err error) {
	c.s.refusedFor[Certificate].Add(1)
	if c.s.refused.first(c.name+" tls", c.s.cfg.Clock.Now()) {
		c.s.cfg.Log.Warn("nfs connection refused: TLS did not begin", "client", c.addr, "err", err)
	}
}
