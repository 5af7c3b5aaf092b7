// SPDX-License-Identifier: Apache-2.0

package gatewaycmd

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	v2 "k8s.io/kms/apis/v2"

	"github.com/weir-storage/weir/cmd/weir/internal/kms"
	"github.com/weir-storage/weir/cmd/weir/internal/machine"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/federation/memory"
)

// plugin is a KMS plugin on a socket, with keys in memory.
type plugin struct {
	v2.UnimplementedKeyManagementServiceServer
	mu     sync.Mutex
	keys   map[string][]byte // by key_id
	now    string            // key_id
	health string
	lies   bool // it opens another thing than it sealed
}

func (p *plugin) gcm(id string) (cipher.AEAD, error) {
	b, err := aes.NewCipher(p.keys[id])
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", id, err)
	}
	return cipher.NewGCMWithRandomNonce(b)
}

func (p *plugin) Status(context.Context, *v2.StatusRequest) (*v2.StatusResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &v2.StatusResponse{Version: "v2", Healthz: p.health, KeyId: p.now}, nil
}

func (p *plugin) Encrypt(_ context.Context, q *v2.EncryptRequest) (*v2.EncryptResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, err := p.gcm(p.now)
	if err != nil {
		return nil, err
	}
	return &v2.EncryptResponse{KeyId: p.now, Ciphertext: a.Seal(nil, nil, q.GetPlaintext(), nil),
		Annotations: map[string][]byte{"kms.example.org": []byte("is handed back")}}, nil
}

func (p *plugin) Decrypt(_ context.Context, q *v2.DecryptRequest) (*v2.DecryptResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if string(q.GetAnnotations()["kms.example.org"]) != "is handed back" {
		return nil, errors.New("annotations are missing")
	}
	a, err := p.gcm(q.GetKeyId())
	if err != nil {
		return nil, err
	}
	b, err := a.Open(nil, nil, q.GetCiphertext(), nil)
	if p.lies {
		b = bytes.Repeat([]byte{1}, 32)
	}
	return &v2.DecryptResponse{Plaintext: b}, err
}

// serve serves at a socket until stop is called.
func (p *plugin) serve(t *testing.T, socket string) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	v2.RegisterKeyManagementServiceServer(s, p)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	return func() { s.Stop(); <-done }
}

// A site's key is sealed by a KMS plugin: what is in the file opens nothing without it. A gateway
// waits for a plugin that is away, and has the key sealed again when the plugin uses another key.
func TestSiteKeyInAKMS(t *testing.T) {
	dir := t.TempDir()
	path, socket := filepath.Join(dir, "site.key"), filepath.Join(dir, "s")
	r, p := memory.New(), &plugin{keys: map[string][]byte{"one": bytes.Repeat([]byte{7}, 32)}, now: "one", health: "ok"}
	stop := p.serve(t, socket)
	client, err := kms.New(kms.Scheme + socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	quiet := slog.New(slog.DiscardHandler)
	plain, sealed := keySource{path: path, logger: quiet}, keySource{path: path, plugin: client, logger: quiet}
	read := func(s keySource) (string, error) {
		k, err := siteKey(t.Context(), s, "ams", r, machine.Pause)
		if err != nil {
			return "", err
		}
		private, err := k.Bytes()
		return string(private), err
	}
	private, err := read(plain) // a site that has had no plugin
	if err != nil {
		t.Fatal(err)
	}
	file := func() string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	p.lies = true
	if err := sealed.write(t.Context(), mustKey(t, plain), false); err == nil || file() != private {
		t.Errorf("a plugin that does not open what it sealed: %v", err)
	}
	p.lies = false
	if got, err := read(sealed); err != nil || got != private {
		t.Fatalf("with the plugin the key is another one: %v", err)
	}
	if text := file(); strings.Contains(text, private) || !strings.Contains(text, `"keyID":"one"`) {
		t.Errorf("the file is %q", text)
	}
	if _, err := read(plain); !errors.Is(err, errSealed) {
		t.Errorf("without the plugin: %v", err)
	}
	if i, err := os.Stat(path); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", i.Mode(), err)
	}

	// The plugin seals with another key; the first one goes when the file is sealed again.
	if done, err := sealed.reseal(t.Context(), mustKey(t, sealed)); done || err != nil {
		t.Errorf("with the same key: %t, %v", done, err)
	}
	k := mustKey(t, sealed)
	p.mu.Lock()
	p.keys["two"], p.now = bytes.Repeat([]byte{8}, 32), "two"
	p.mu.Unlock()
	if done, err := sealed.reseal(t.Context(), k); !done || err != nil || !strings.Contains(file(), `"keyID":"two"`) {
		t.Errorf("with another key: %t, %v", done, err)
	}
	p.mu.Lock()
	delete(p.keys, "one")
	p.health = "no token"
	p.mu.Unlock()
	if got, err := read(sealed); err != nil || got != private {
		t.Errorf("sealed again it is another one: %v", err)
	}
	if _, err := sealed.reseal(t.Context(), k); err == nil || !strings.Contains(err.Error(), "it says that it is not well: no token") {
		t.Errorf("a plugin that is not well: %v", err)
	}

	// It is away: the gateway waits, and goes on when it is back.
	stop()
	waited := 0
	pause := func(ctx context.Context, _ time.Duration) bool {
		if waited++; waited == 2 {
			stop = p.serve(t, socket)
		}
		return machine.Pause(ctx, 10*time.Millisecond)
	}
	got, err := siteKey(t.Context(), sealed, "ams", r, pause)
	if err != nil || waited < 2 || string(got.Public()) != string(k.Public()) {
		t.Errorf("after %d pauses: %v", waited, err)
	}
	stop()
	if _, err := sealed.read(t.Context()); err == nil || !strings.Contains(err.Error(), "KMS plugin at unix://") {
		t.Errorf("away: %v", err)
	}
	if _, err := kms.New("/run/kms.sock"); err == nil {
		t.Error("a path without unix:// is taken")
	}
}

// The first key of a site is never in a file as it is.
func TestFirstSiteKeyInAKMS(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	defer (&plugin{keys: map[string][]byte{"one": make([]byte, 32)}, now: "one", health: "ok"}).serve(t, socket)()
	client, err := kms.New(kms.Scheme + socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	s := keySource{path: filepath.Join(dir, "site.key"), plugin: client, logger: slog.New(slog.DiscardHandler)}
	k, err := siteKey(t.Context(), s, "ams", memory.New(), machine.Pause)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(s.path)
	if err != nil || !isSealed(text) {
		t.Errorf("the file is %q, %v", text, err)
	}
	if again, err := s.read(t.Context()); err != nil || string(again.Public()) != string(k.Public()) {
		t.Errorf("read again it is another one: %v", err)
	}
}

func mustKey(t *testing.T, s keySource) keyring.SiteKey {
	t.Helper()
	k, err := s.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// The key of a site that has had no plugin is taken from another file, which nobody can write, if
// it is the site's. So is what was sealed, from a backup. What is there comes first.
func TestSiteKeyTakenFromAnotherFile(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	defer (&plugin{keys: map[string][]byte{"one": make([]byte, 32)}, now: "one", health: "ok"}).serve(t, socket)()
	client, err := kms.New(kms.Scheme + socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	quiet := slog.New(slog.DiscardHandler)
	old := keySource{path: filepath.Join(dir, "old.key"), logger: quiet}
	k, err := old.make(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := memory.New()
	if err := r.Register(t.Context(), federation.Site{Name: "ams", Organization: "SURF", WrapKey: k.Public()}); err != nil {
		t.Fatal(err)
	}
	other := keySource{path: filepath.Join(dir, "other.key"), logger: quiet}
	if _, err := other.make(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := keySource{path: filepath.Join(dir, "site.key"), from: other.path, plugin: client, logger: quiet}
	if _, err := siteKey(t.Context(), s, "ams", r, machine.Pause); err == nil || !strings.Contains(err.Error(), "registered") {
		t.Errorf("another site's key: %v", err)
	}
	if _, err := os.Stat(s.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another site's key was written: %v", err)
	}
	if wrong, err := s.read(t.Context()); err != nil { // the registry does not answer, and the gateway goes on with it
		t.Fatal(err)
	} else if done, err := s.reseal(t.Context(), wrong); done || err == nil {
		t.Errorf("a key that nobody compared with the registry's is written: %v", err)
	}
	s.from = old.path
	got, err := siteKey(t.Context(), s, "ams", r, machine.Pause)
	if err != nil || string(got.Public()) != string(k.Public()) {
		t.Fatalf("it is another key: %v", err)
	}
	text, err := os.ReadFile(s.path)
	if err != nil || !isSealed(text) {
		t.Errorf("the file is %q, %v", text, err)
	}
	if clear, err := os.ReadFile(old.path); err != nil || isSealed(clear) {
		t.Errorf("the other file was changed: %v", err)
	}

	// A backup of what was sealed, after the file was lost.
	backup := keySource{path: filepath.Join(dir, "again.key"), from: s.path, plugin: client, logger: quiet}
	if got, err = siteKey(t.Context(), backup, "ams", r, machine.Pause); err != nil || string(got.Public()) != string(k.Public()) {
		t.Errorf("from a backup it is another key: %v", err)
	}
	backup.from = other.path // of no interest any more
	if got, err = siteKey(t.Context(), backup, "ams", r, machine.Pause); err != nil || string(got.Public()) != string(k.Public()) {
		t.Errorf("with a file it is another key: %v", err)
	}

	// A backup is printed; a key as it is is not.
	var out bytes.Buffer
	if err := printSealed(&out, s.path); err != nil || !isSealed(out.Bytes()) || !bytes.Equal(out.Bytes(), text) {
		t.Errorf("the backup is %q, %v", out.String(), err)
	}
	out.Reset()
	if err := printSealed(&out, old.path); err == nil || out.Len() > 0 {
		t.Errorf("a key that is not sealed is printed: %v", err)
	}
}
