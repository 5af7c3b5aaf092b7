// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// handshakes remembers why the latest handshake failed. gRPC tells a caller only that time ran out,
// and certificates are what goes wrong most often.
type handshakes struct {
	mu   sync.Mutex
	last error
}

func (h *handshakes) set(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = err
}

func (h *handshakes) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// recorder is TLS that tells a handshakes.
type recorder struct {
	credentials.TransportCredentials
	to *handshakes
}

func newRecorder(by credentials.TransportCredentials, to *handshakes) credentials.TransportCredentials {
	return recorder{by, to}
}

func (r recorder) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := r.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		r.to.set(err)
		return nil, nil, err
	}
	return &firstRead{Conn: c, to: r.to}, info, nil
}

func (r recorder) Clone() credentials.TransportCredentials {
	return recorder{r.TransportCredentials.Clone(), r.to}
}

// firstRead is where TLS 1.3 tells that the server refused the client's certificate.
type firstRead struct {
	net.Conn
	to   *handshakes
	once sync.Once
}

func (f *firstRead) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	f.once.Do(func() { f.to.set(err) })
	return n, err
}
