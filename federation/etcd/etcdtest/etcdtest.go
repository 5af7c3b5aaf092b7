// SPDX-License-Identifier: Apache-2.0

// Package etcdtest runs a real etcd process for tests: one member, on loopback, in the test's
// temporary folder, built by hack/tools/build. Its fsync is off: tests kill the process, not the
// machine.
package etcdtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Server is a running member.
type Server struct {
	// Endpoint is its client URL, PeerURL that for other members. Its name is "test".
	Endpoint, PeerURL string

	t       testing.TB
	args    []string
	metrics string
	mu      sync.Mutex
	cmd     *exec.Cmd
	log     *bytes.Buffer
	dead    chan struct{}
}

// Files are PEM paths for mutual TLS towards clients.
type Files struct{ CA, Cert, Key string }

// Start runs an etcd until the test ends. With files it demands client certificates.
func Start(t testing.TB, files *Files) *Server {
	t.Helper()
	bin := Program(t, "etcd")
	dir := t.TempDir()
	for try := 1; ; try++ {
		client, peer, metrics := freePort(t), freePort(t), freePort(t)
		s := &Server{t: t, Endpoint: "http://" + client, PeerURL: "http://" + peer, metrics: "http://" + metrics}
		if files != nil {
			s.Endpoint = "https://" + client
		}
		s.args = []string{bin, "--name=test", "--data-dir=" + filepath.Join(dir, fmt.Sprint(try)), "--unsafe-no-fsync", "--log-level=error",
			"--listen-client-urls=" + s.Endpoint, "--advertise-client-urls=" + s.Endpoint,
			"--listen-peer-urls=" + s.PeerURL, "--initial-advertise-peer-urls=" + s.PeerURL, "--initial-cluster=test=" + s.PeerURL,
			"--listen-metrics-urls=" + s.metrics}
		if files != nil {
			s.args = append(s.args, "--client-cert-auth", "--trusted-ca-file="+files.CA, "--cert-file="+files.Cert, "--key-file="+files.Key)
		}
		if err := s.start(); err == nil {
			t.Cleanup(s.Stop)
			return s
		} else if try == 5 { // another process took one of the ports
			t.Fatal(err)
		}
	}
}

// Stop kills the process, as a power cut would; its data stays.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.dead
	s.cmd = nil
}

// Pause stops it without ending it: it keeps its connections and says nothing. Stop ends it.
func (s *Server) Pause() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		s.t.Fatal(err)
	}
}

// Restart runs it again on the same data and port, after a Stop.
func (s *Server) Restart() {
	s.t.Helper()
	if err := s.start(); err != nil {
		s.t.Fatal(err)
	}
}

// RestartOn runs it again on another data folder, after a Stop.
func (s *Server) RestartOn(dir string) {
	s.t.Helper()
	s.args = append(s.args, "--data-dir="+dir) // the last one counts
	s.Restart()
}

func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = new(bytes.Buffer)
	s.cmd = exec.Command(s.args[0], s.args[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	dead := make(chan struct{})
	s.dead = dead
	go func(cmd *exec.Cmd) { _ = cmd.Wait(); close(dead) }(s.cmd)
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute) // guards against a hang only
	defer cancel()
	for {
		if ready(ctx, s.metrics+"/health") {
			return nil
		}
		select {
		case <-dead:
			s.cmd = nil
			return fmt.Errorf("etcd ended: %s", s.log.String())
		case <-ctx.Done():
			return fmt.Errorf("etcd did not get ready: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func ready(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// Program makes a program of etcd (etcd, etcdctl, etcdutl) if it is not there yet, and returns its
// path.
func Program(t testing.TB, name string) string {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		script := filepath.Join(root, "hack", "tools", "build")
		if _, err := os.Stat(script); err == nil {
			if out, err := exec.Command(script, "etcd").CombinedOutput(); err != nil {
				t.Fatalf("build etcd: %v\n%s", err, out)
			}
			out, err := exec.Command(script, "-p").Output()
			if err != nil {
				t.Fatalf("find etcd: %v", err)
			}
			return filepath.Join(strings.TrimSpace(string(out)), name)
		}
		if root == filepath.Dir(root) {
			t.Fatal("hack/tools/build is in no folder above: run the test inside the source tree")
		}
		root = filepath.Dir(root)
	}
}
