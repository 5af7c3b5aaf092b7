// SPDX-License-Identifier: Apache-2.0

// Package s3test runs a real S3 server (versitygw on a temporary folder, loopback) for tests, built
// by hack/tools/build.
package s3test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/store/s3"
)

// Keys of the server's root account.
const (
	AccessKey = "weirtest"
	SecretKey = "weirtest-secret"
)

// Server is a running versitygw.
type Server struct {
	// Endpoint is its URL.
	Endpoint string
	// Dir is the folder that it serves: a bucket is a folder in it, an object a file.
	Dir string

	t    *testing.T
	bin  string
	addr string
	mu   sync.Mutex
	cmd  *exec.Cmd
	dead chan struct{}
}

// Start runs a server until the test ends.
func Start(t *testing.T) *Server {
	t.Helper()
	s := &Server{t: t, bin: build(t), Dir: t.TempDir()}
	for try := 1; ; try++ {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.addr = l.Addr().String()
		s.Endpoint = "http://" + s.addr
		_ = l.Close()
		if err = s.start(); err == nil {
			t.Cleanup(s.Stop)
			return s
		} else if try == 5 { // another process took the port
			t.Fatal(err)
		}
	}
}

// Config returns how to reach a bucket on the server.
func (s *Server) Config(bucket string) s3.Config {
	return s3.Config{Endpoint: s.Endpoint, Bucket: bucket, AccessKey: AccessKey, SecretKey: SecretKey}
}

// Stop kills the process; its objects stay.
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

// Restart runs it again on the same objects and port.
func (s *Server) Restart() {
	s.t.Helper()
	if err := s.start(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var log bytes.Buffer
	cmd := exec.Command(s.bin, "--port", s.addr, "--access", AccessKey, "--secret", SecretKey, "--quiet", "posix", s.Dir)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return err
	}
	dead := make(chan struct{})
	go func() { _ = cmd.Wait(); close(dead) }()
	s.cmd, s.dead = cmd, dead
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute) // guards against a hang only
	defer cancel()
	for {
		if c, err := net.Dial("tcp", s.addr); err == nil {
			_ = c.Close()
			return nil
		}
		select {
		case <-dead:
			s.cmd = nil
			return fmt.Errorf("versitygw ended: %s", log.String())
		case <-ctx.Done():
			return fmt.Errorf("versitygw did not get ready: %w", ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// build makes the program if it is not there yet and returns its path.
func build(t *testing.T) string {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		script := filepath.Join(root, "hack", "tools", "build")
		if _, err := os.Stat(script); err == nil {
			if out, err := exec.Command(script, "s3").CombinedOutput(); err != nil {
				t.Fatalf("build versitygw: %v\n%s", err, out)
			}
			out, err := exec.Command(script, "-p").Output()
			if err != nil {
				t.Fatalf("find versitygw: %v", err)
			}
			return filepath.Join(strings.TrimSpace(string(out)), "versitygw")
		}
		if root == filepath.Dir(root) {
			t.Fatal("hack/tools/build is in no folder above: run the test inside the source tree")
		}
		root = filepath.Dir(root)
	}
}
