// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const s3Port = 7070

// S3 is an S3 server (versitygw) at a site that keeps objects as files. Its methods may be called
// from several goroutines.
type S3 struct {
	site           *Site
	bin            string
	access, secret string

	mu   sync.Mutex
	proc *Proc
}

// StartS3 starts the S3 server of a site and returns when it answers. The keys are its
// administrator's. It speaks plain HTTP, within the site. Objects are below Dir(), output in
// s3.log.
func (s *Stage) StartS3(ctx context.Context, site *Site, accessKey, secretKey string) (*S3, error) {
	bin, err := s.program("versitygw")
	if err != nil {
		return nil, fmt.Errorf("start s3 at site %s: %w", site.name, err)
	}
	s3 := &S3{site: site, bin: bin, access: accessKey, secret: secretKey}
	if err := os.MkdirAll(s3.Dir(), 0o755); err != nil {
		return nil, fmt.Errorf("start s3 at site %s: %w", site.name, err)
	}
	if err := s3.Start(); err != nil {
		return nil, err
	}
	return s3, s3.Ready(ctx)
}

// Endpoint is the server's URL.
func (s *S3) Endpoint() string { return "http://" + s.Addr() }

// Addr is the server's host and port.
func (s *S3) Addr() string { return fmt.Sprintf("%s:%d", s.site.Addr(), s3Port) }

// Keys are those of its administrator.
func (s *S3) Keys() (access, secret string) { return s.access, s.secret }

// Dir is the folder in which buckets are folders and objects are files, with metadata in extended
// attributes.
func (s *S3) Dir() string { return filepath.Join(s.site.Dir(), "s3.data") }

// Start starts the server again after its process has ended.
func (s *S3) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil && !s.proc.Exited() {
		return fmt.Errorf("start s3 at site %s: it runs", s.site.name)
	}
	// Without an address versitygw listens everywhere. The keys go by the environment, where other
	// users do not see them.
	cmd := s.site.Command(context.Background(), s.bin, "--port", s.Addr(), "--health", "/health", "--keep-alive", "--quiet",
		"posix", s.Dir())
	cmd.Env = append(cmd.Environ(), "ROOT_ACCESS_KEY="+s.access, "ROOT_SECRET_KEY="+s.secret)
	p, err := s.site.Start("s3", cmd)
	if err == nil {
		s.proc = p
	}
	return err
}

// Proc is the process of the latest Start, to kill, stop and continue.
func (s *S3) Proc() *Proc {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// Ready waits until the server answers.
func (s *S3) Ready(ctx context.Context) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: s.site.DialContext}}
	defer client.CloseIdleConnections()
	return awaitHTTP(ctx, client, s.Endpoint()+"/health", s.Proc())
}
