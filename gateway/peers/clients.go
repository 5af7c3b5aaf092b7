// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/weir-storage/weir/pki"
)

// rpcProtocol is what RPC names itself in TLS (RFC 9289 section 4.3.1). A client that names others
// is refused. Programs are about that name none, as tlshd, so those are not.
const rpcProtocol = "sunrpc"

// handshakeTime is how long a client may take to begin TLS.
const handshakeTime = 10 * time.Second

// Clients makes connections of NFS clients ones of TLS (nfs.Config.StartTLS). A client of this
// gateway's site shows a certificate of part client, or none: then what it sends cannot be read by
// others, and it is not certified. The name of its certificate is returned. A connection ends when
// its certificate does not count any more, as those of gateways do.
func Clients(creds *pki.Credentials, organization, site string) func(context.Context, net.Conn) (net.Conn, string, error) {
	cfg := creds.ServerOfClients(pki.Expect{Organizations: []string{organization}, Site: site, Part: pki.PartClient})
	cfg.NextProtos = []string{rpcProtocol}
	cfg.SessionTicketsDisabled = true // a kernel that has the keys already would get them
	return func(ctx context.Context, raw net.Conn) (net.Conn, string, error) {
		ctx, cancel := context.WithTimeout(ctx, handshakeTime)
		defer cancel()
		conn := tls.Server(raw, cfg)
		if err := conn.HandshakeContext(ctx); err != nil {
			return nil, "", fmt.Errorf("tls: %w", err)
		}
		s := conn.ConnectionState()
		kept, err := creds.Keep(conn, s, cfg.VerifyConnection)
		if err != nil {
			return nil, "", err
		}
		if len(s.PeerCertificates) == 0 {
			return kept, "", nil
		}
		id, err := pki.PeerIdentity(s)
		if err != nil {
			return nil, "", errors.Join(err, kept.Close())
		}
		ends := time.AfterFunc(time.Until(s.PeerCertificates[0].NotAfter), func() { _ = kept.Close() })
		return certified{kept, ends}, id.String(), nil
	}
}

// certified is a connection that ends with its client's certificate.
type certified struct {
	net.Conn
	ends *time.Timer
}

// Close ends the connection.
func (c certified) Close() error {
	c.ends.Stop()
	return c.Conn.Close()
}
