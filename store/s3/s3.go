// SPDX-License-Identifier: Apache-2.0

// Package s3 is a store in a bucket of any S3-compatible server. An object is one conditional PUT
// (If-None-Match: *), so that the Puts of two gateways never replace each other's: a server that
// ignores the condition fails Check. Replace, of what is damaged, is a PUT without it, which a
// bucket's policy may refuse.
package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/weir-storage/weir/store"
)

// Config is how to reach a bucket.
type Config struct {
	// Endpoint is a URL without a path, such as https://s3.example.org or http://127.0.0.1:7070.
	Endpoint string
	Bucket   string
	// Region is what the server wants to see in signatures; empty: us-east-1.
	Region    string
	AccessKey string
	SecretKey string
	// Transport does the requests; nil: a clone of net/http's default one. The store never closes
	// it.
	Transport http.RoundTripper
}

// Store is a bucket.
type Store struct {
	cfg    Config
	client *minio.Client
}

var _ store.Store = (*Store)(nil)

// attempts of one request within minio's client; who uploads repeats what matters, for as long as
// it matters.
const attempts = 3

// New prepares the store without asking the server; see Check. Errors wrap store.ErrInvalid.
func New(cfg Config) (*Store, error) {
	s := &Store{cfg: cfg}
	bad := func(format string, a ...any) error {
		return &store.Error{Op: "open", Store: s.String(), Err: store.ErrInvalid, Detail: fmt.Sprintf(format, a...)}
	}
	u, err := url.Parse(cfg.Endpoint)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return nil, bad("endpoint is %q: write a URL without a path, such as https://s3.example.org", cfg.Endpoint)
	}
	for _, f := range [][2]string{{"bucket", cfg.Bucket}, {"accessKey", cfg.AccessKey}, {"secretKey", cfg.SecretKey}} {
		if f[1] == "" {
			return nil, bad("%s is empty: give all of endpoint, bucket, accessKey and secretKey", f[0])
		}
	}
	if s.cfg.Region == "" {
		s.cfg.Region = "us-east-1"
	}
	if cfg.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 32
		t.DisableCompression = true
		s.cfg.Transport = t
	}
	s.client, err = minio.New(u.Host, &minio.Options{
		Creds:      credentials.NewStaticV4(cfg.AccessKey, cfg.SecretKey, ""),
		Secure:     u.Scheme == "https",
		Region:     s.cfg.Region, // else each client first asks for it
		Transport:  s.cfg.Transport,
		MaxRetries: attempts,
	})
	if err != nil {
		return nil, bad("%v", err)
	}
	return s, nil
}

// String names the store in messages; it never has keys in it.
func (s *Store) String() string { return "s3 " + s.cfg.Endpoint + " bucket " + s.cfg.Bucket }

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, name string, size int64, body io.ReadSeeker) error {
	if err := store.CheckName(name); err != nil {
		return err
	}
	if n, err := body.Seek(0, io.SeekEnd); err != nil || n != size {
		return s.fail(ctx, "put", name, fmt.Errorf("%w: the body has %d bytes (%v), not %d", store.ErrInvalid, n, err, size))
	}
	err := s.put(ctx, name, size, body, false)
	for try := 1; try < attempts && errorCode(err) == "ConditionalRequestConflict"; try++ {
		err = s.put(ctx, name, size, body, false) // two puts at the same moment: the server wants one to come again
	}
	if !exists(err) {
		return s.fail(ctx, "put", name, err)
	}
	i, err := s.Stat(ctx, name)
	if errors.Is(err, store.ErrNotExist) {
		return s.fail(ctx, "put", name, fmt.Errorf("%w: the object was there and was deleted at the same moment", store.ErrUnavailable))
	}
	if err == nil && i.Size != size {
		return s.fail(ctx, "put", name, fmt.Errorf("%w: it has %d bytes, not %d: compare both with their hash, and delete the damaged one",
			store.ErrConflict, i.Size, size))
	}
	return err
}

// Replace implements store.Replacer: a PUT without a condition.
func (s *Store) Replace(ctx context.Context, name string, size int64, body io.ReadSeeker) error {
	if err := store.CheckName(name); err != nil {
		return err
	}
	if n, err := body.Seek(0, io.SeekEnd); err != nil || n != size {
		return s.fail(ctx, "replace", name, fmt.Errorf("%w: the body has %d bytes (%v), not %d", store.ErrInvalid, n, err, size))
	}
	return s.fail(ctx, "replace", name, s.put(ctx, name, size, body, true))
}

// put is one PUT: a conditional one, unless it is to replace what is there.
func (s *Store) put(ctx context.Context, name string, size int64, body io.ReadSeeker, replace bool) error {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	lent := &lent{body: body}
	defer lent.end()
	opts := minio.PutObjectOptions{DisableMultipart: true, ContentType: "application/octet-stream"}
	if !replace {
		opts.SetMatchETagExcept("*")
	}
	_, err := s.client.PutObject(ctx, s.cfg.Bucket, name, lent, size, opts)
	return err
}

// exists returns the answer to a conditional PUT of an object that exists.
func exists(err error) bool { return errorCode(err) == "PreconditionFailed" }

// lent is a body that the HTTP transport can neither close nor read after Put returned: an early
// answer leaves it reading.
type lent struct {
	mu   sync.Mutex
	body io.ReadSeeker
}

var errEnded = errors.New("the upload has ended")

func (l *lent) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.body = nil
}

func (l *lent) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.body == nil {
		return 0, errEnded
	}
	return l.body.Read(p)
}

func (l *lent) Seek(off int64, whence int) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.body == nil {
		return 0, errEnded
	}
	return l.body.Seek(off, whence)
}

// GetRange implements store.Store.
func (s *Store) GetRange(ctx context.Context, name string, off int64, p []byte) error {
	if err := store.CheckName(name); err != nil {
		return err
	}
	if off < 0 {
		return s.fail(ctx, "get", name, fmt.Errorf("%w: offset %d", store.ErrInvalid, off))
	}
	if len(p) == 0 {
		return nil
	}
	var opts minio.GetObjectOptions
	if err := opts.SetRange(off, off+int64(len(p))-1); err != nil {
		return s.fail(ctx, "get", name, fmt.Errorf("%w: %w", store.ErrInvalid, err))
	}
	body, _, header, err := minio.Core{Client: s.client}.GetObject(ctx, s.cfg.Bucket, name, opts)
	if err != nil {
		return s.fail(ctx, "get", name, err)
	}
	defer func() { _ = body.Close() }()
	var first, last int64
	got := header.Get("Content-Range")
	if _, err := fmt.Sscanf(got, "bytes %d-%d/", &first, &last); err != nil || first != off {
		return s.fail(ctx, "get", name, fmt.Errorf("%w: asked for bytes from %d, the answer's Content-Range is %q: this server or a "+
			"proxy before it cannot read ranges",
			store.ErrUnavailable, off, got))
	}
	if last-first+1 < int64(len(p)) {
		return s.fail(ctx, "get", name, fmt.Errorf("%w: it ends at byte %d, %d were wanted from %d", store.ErrShort, last+1, len(p), off))
	}
	if _, err := io.ReadFull(body, p); err != nil {
		return s.fail(ctx, "get", name, fmt.Errorf("%w: the answer broke off: %w", store.ErrUnavailable, err))
	}
	return nil
}

// Stat implements store.Store. The answer to a HEAD has no room for an error's name: some servers
// (versitygw) say 404 for an account that was removed too, which reads as store.ErrNotExist. Every
// other operation tells them apart.
func (s *Store) Stat(ctx context.Context, name string) (store.Info, error) {
	if err := store.CheckName(name); err != nil {
		return store.Info{}, err
	}
	o, err := s.client.StatObject(ctx, s.cfg.Bucket, name, minio.StatObjectOptions{})
	if err != nil {
		return store.Info{}, s.fail(ctx, "stat", name, err)
	}
	return store.Info{Name: name, Size: o.Size, Modified: o.LastModified}, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string, fn func(store.Info) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing when fn stops it
	for o := range s.client.ListObjectsIter(ctx, s.cfg.Bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			return s.fail(ctx, "list", prefix, o.Err)
		}
		if store.CheckName(o.Key) != nil {
			continue // not ours: somebody else's, or a folder's marker
		}
		if err := fn(store.Info{Name: o.Key, Size: o.Size, Modified: o.LastModified}); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return s.fail(ctx, "list", prefix, err)
	}
	return nil
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := store.CheckName(name); err != nil {
		return err
	}
	err := s.fail(ctx, "delete", name, s.client.RemoveObject(ctx, s.cfg.Bucket, name, minio.RemoveObjectOptions{}))
	if errors.Is(err, store.ErrNotExist) {
		return nil
	}
	return err
}
