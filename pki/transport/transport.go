// SPDX-License-Identifier: Apache-2.0

// Package transport has the transport credentials of gRPC for connections that end when their peer
// is not accepted any more (pki.Credentials.Adopt).
package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/weir-storage/weir/pki"
)

// kept is TLS whose connections are watched over.
type kept struct {
	credentials.TransportCredentials
	of  *pki.Credentials
	cfg *tls.Config
}

// Server returns the credentials of a server that demands certificates of those expected.
func Server(c *pki.Credentials, want pki.Expect) credentials.TransportCredentials {
	return newKept(c, c.Server(want))
}

// Client returns the credentials of a client with cfg, which is of c.
func Client(c *pki.Credentials, cfg *tls.Config) credentials.TransportCredentials {
	return newKept(c, cfg)
}

func newKept(c *pki.Credentials, cfg *tls.Config) kept { return kept{credentials.NewTLS(cfg), c, cfg} }

// ServerHandshake implements credentials.TransportCredentials.
func (k kept) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := k.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	return k.keep(conn, info)
}

// ClientHandshake implements credentials.TransportCredentials.
func (k kept) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := k.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return k.keep(conn, info)
}

func (k kept) keep(conn net.Conn, info credentials.AuthInfo) (net.Conn, credentials.AuthInfo, error) {
	is, ok := info.(credentials.TLSInfo)
	if !ok {
		return nil, nil, errors.Join(fmt.Errorf("connection of %T, not of TLS", info), conn.Close())
	}
	c, err := k.of.Keep(conn, is.State, k.cfg.VerifyConnection)
	if err != nil {
		return nil, nil, err
	}
	return c, info, nil
}

// Clone implements credentials.TransportCredentials.
func (k kept) Clone() credentials.TransportCredentials {
	return kept{k.TransportCredentials.Clone(), k.of, k.cfg}
}
