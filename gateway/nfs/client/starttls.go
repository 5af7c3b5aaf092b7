// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// ErrNoTLS is returned when the server does not agree to TLS.
var ErrNoTLS = errors.New("the nfs server has no TLS")

// startTLS asks the server for TLS, and begins it (RFC 9289 section 4.1). On an error it closes
// raw.
func startTLS(ctx context.Context, raw net.Conn, cfg *tls.Config) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	err := probe(raw)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	cfg = cfg.Clone()
	cfg.NextProtos = []string{"sunrpc"}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("tls with the nfs server: %w", err), raw.Close())
	}
	return conn, nil
}

func probe(raw net.Conn) error {
	const xid = 1
	var e xdr.Encoder
	e.CallHeader(xdr.CallHeader{XID: xid, Program: xdr.NFS4_PROGRAM, Version: xdr.NFS_V4, Procedure: xdr.NFSPROC4_NULL,
		Cred: xdr.OpaqueAuth{Flavor: xdr.AUTH_TLS}})
	if err := xdr.WriteRecord(raw, &e); err != nil {
		return err
	}
	buf, err := xdr.ReadRecord(raw, maxReply)
	if err != nil {
		return err
	}
	defer buf.Free()
	d := xdr.NewDecoder(buf.B)
	reply := []uint32{d.Uint32(), d.Uint32(), d.Uint32(), d.Uint32()}
	if reply[0] != xid || reply[1] != xdr.RPC_REPLY || reply[2] != xdr.MSG_ACCEPTED || reply[3] != xdr.AUTH_NONE ||
		d.String(len(xdr.StartTLS)) != xdr.StartTLS || d.Uint32() != xdr.SUCCESS || d.Err() != nil {
		return ErrNoTLS
	}
	return nil
}
