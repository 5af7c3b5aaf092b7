// SPDX-License-Identifier: Apache-2.0

// Command kms is a KMS plugin of Kubernetes' version 2 for tests: `kms SOCKET KEYID` serves at a
// socket until it is killed, with a key in memory that nobody else has.
package main

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	v2 "k8s.io/kms/apis/v2"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kms:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("give the path of the socket, and the key's name")
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return err
	}
	p := &plugin{name: args[1]}
	if p.key, err = cipher.NewGCMWithRandomNonce(block); err != nil {
		return err
	}
	l, err := net.Listen("unix", args[0])
	if err != nil {
		return err
	}
	if err := os.Chmod(args[0], 0o666); err != nil { // gateways do not run as root
		return err
	}
	s := grpc.NewServer()
	v2.RegisterKeyManagementServiceServer(s, p)
	return s.Serve(l)
}

type plugin struct {
	v2.UnimplementedKeyManagementServiceServer
	name string
	key  cipher.AEAD
}

func (p *plugin) Status(context.Context, *v2.StatusRequest) (*v2.StatusResponse, error) {
	return &v2.StatusResponse{Version: "v2", Healthz: "ok", KeyId: p.name}, nil
}

func (p *plugin) Encrypt(_ context.Context, q *v2.EncryptRequest) (*v2.EncryptResponse, error) {
	return &v2.EncryptResponse{KeyId: p.name, Ciphertext: p.key.Seal(nil, nil, q.GetPlaintext(), nil)}, nil
}

func (p *plugin) Decrypt(_ context.Context, q *v2.DecryptRequest) (*v2.DecryptResponse, error) {
	if q.GetKeyId() != p.name {
		return nil, fmt.Errorf("key %q is not here", q.GetKeyId())
	}
	text, err := p.key.Open(nil, nil, q.GetCiphertext(), nil)
	return &v2.DecryptResponse{Plaintext: text}, err
}
