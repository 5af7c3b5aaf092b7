// SPDX-License-Identifier: Apache-2.0

// Package kms asks a KMS plugin to seal and open secrets, as Kubernetes' API server does: version 2
// of its protocol (k8s.io/kms/apis/v2), on a Unix socket.
package kms

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v2 "k8s.io/kms/apis/v2"
)

// Version is that of the protocol.
const Version = "v2"

// Scheme begins an endpoint. What follows is the absolute path of a socket.
const Scheme = "unix://"

// Sealed is what a plugin sealed, and what it needs to open that again.
type Sealed struct {
	KeyID       string            `json:"keyID"` // of the plugin's key
	Ciphertext  []byte            `json:"ciphertext"`
	Annotations map[string][]byte `json:"annotations,omitempty"`
}

// Plugin is a plugin. Its methods may be called from many goroutines. Each takes callTime at most.
// An error says nothing of the secret.
type Plugin struct {
	endpoint string
	conn     *grpc.ClientConn
	client   v2.KeyManagementServiceClient
}

const callTime = 10 * time.Second

// New returns the plugin at an endpoint. It need not be there yet.
func New(endpoint string) (*Plugin, error) {
	if !strings.HasPrefix(endpoint, Scheme+"/") {
		return nil, fmt.Errorf("%q is no path of a socket: write %s/run/kms.sock", endpoint, Scheme)
	}
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
	if err != nil {
		return nil, fmt.Errorf("KMS plugin at %s: %w", endpoint, err)
	}
	return &Plugin{endpoint, conn, v2.NewKeyManagementServiceClient(conn)}, nil
}

// Close ends the connection.
func (p *Plugin) Close() error { return p.conn.Close() }

func (p *Plugin) failed(err error) error {
	return fmt.Errorf("KMS plugin at %s: %w: what it sealed is opened when it is well again", p.endpoint, err)
}

// KeyID returns which key the plugin seals with now, if it is well.
func (p *Plugin) KeyID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	is, err := p.client.Status(ctx, &v2.StatusRequest{})
	switch {
	case err != nil:
		return "", p.failed(err)
	case is.GetVersion() != Version && is.GetVersion() != "v2beta1":
		return "", p.failed(fmt.Errorf("it speaks version %q, and %s is known here", is.GetVersion(), Version))
	case is.GetHealthz() != "ok":
		return "", p.failed(fmt.Errorf("it says that it is not well: %s", is.GetHealthz()))
	case is.GetKeyId() == "":
		return "", p.failed(errors.New("it names no key"))
	}
	return is.GetKeyId(), nil
}

// Seal seals a secret. uid names the request in the plugin's log.
func (p *Plugin) Seal(ctx context.Context, uid string, secret []byte) (Sealed, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	r, err := p.client.Encrypt(ctx, &v2.EncryptRequest{Plaintext: secret, Uid: uid})
	if err == nil && (len(r.GetCiphertext()) == 0 || r.GetKeyId() == "") {
		err = errors.New("it sealed nothing, or names no key")
	}
	if err != nil {
		return Sealed{}, p.failed(err)
	}
	return Sealed{KeyID: r.GetKeyId(), Ciphertext: r.GetCiphertext(), Annotations: r.GetAnnotations()}, nil
}

// Open opens what Seal returned.
func (p *Plugin) Open(ctx context.Context, uid string, s Sealed) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	r, err := p.client.Decrypt(ctx, &v2.DecryptRequest{Ciphertext: s.Ciphertext, Uid: uid, KeyId: s.KeyID, Annotations: s.Annotations})
	if err != nil {
		return nil, p.failed(err)
	}
	return r.GetPlaintext(), nil
}
