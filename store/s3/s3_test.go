// SPDX-License-Identifier: Apache-2.0

package s3_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/store/s3"
	"github.com/weir-storage/weir/store/s3/s3test"
	"github.com/weir-storage/weir/store/storetest"
)

func open(t *testing.T, cfg s3.Config) *s3.Store {
	t.Helper()
	s, err := s3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSuite(t *testing.T) {
	server := s3test.Start(t)
	var n atomic.Int64
	storetest.Run(t, func(t *testing.T) store.Store {
		s := open(t, server.Config(fmt.Sprintf("bucket%d", n.Add(1))))
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func TestCheck(t *testing.T) {
	server := s3test.Start(t)
	good := server.Config("weir")
	for _, tt := range []struct {
		name  string
		spoil func(*s3.Config)
		err   error
		words []string
	}{
		{"bucket is made", func(*s3.Config) {}, nil, nil},
		{"bucket is there", func(*s3.Config) {}, nil, nil},
		{"unknown key", func(c *s3.Config) { c.AccessKey = "nobody" }, store.ErrAccess,
			[]string{server.Endpoint, "bucket weir", `accessKey "nobody"`, "secretKey"}},
		{"wrong secret", func(c *s3.Config) { c.SecretKey = "not-the-secret" }, store.ErrAccess,
			[]string{server.Endpoint, "bucket weir", "secretKey"}},
		{"no such port", func(c *s3.Config) { c.Endpoint = "http://127.0.0.1:1" }, store.ErrUnavailable,
			[]string{"127.0.0.1:1", "endpoint"}},
		{"bad bucket", func(c *s3.Config) { c.Bucket = "A_B" }, store.ErrInvalid, []string{"bucket A_B"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := good
			tt.spoil(&cfg)
			err := open(t, cfg).Check(t.Context())
			if !errors.Is(err, tt.err) {
				t.Fatalf("error is %v, want %v", err, tt.err)
			}
			for _, w := range tt.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v does not say %s", err, w)
				}
			}
			if err != nil && strings.Contains(err.Error(), cfg.SecretKey) {
				t.Errorf("%v has the secret in it", err)
			}
		})
	}
	if got := list(t, open(t, good)); len(got) != 0 {
		t.Errorf("checks left %v", got)
	}
}

func list(t *testing.T, s store.Store) []string {
	t.Helper()
	var out []string
	if err := s.List(t.Context(), "", func(i store.Info) error { out = append(out, i.Name); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestNewRefuses(t *testing.T) {
	for _, cfg := range []s3.Config{
		{Endpoint: "127.0.0.1:7070", Bucket: "b", AccessKey: "a", SecretKey: "s"},
		{Endpoint: "ftp://x", Bucket: "b", AccessKey: "a", SecretKey: "s"},
		{Endpoint: "http://x/path", Bucket: "b", AccessKey: "a", SecretKey: "s"},
		{Endpoint: "http://x", AccessKey: "a", SecretKey: "s"},
		{Endpoint: "http://x", Bucket: "b", SecretKey: "s"},
		{Endpoint: "http://x", Bucket: "b", AccessKey: "a"},
	} {
		if _, err := s3.New(cfg); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// roundTrip is a transport that tampers.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A server that ignores conditions would let objects be replaced: it is refused.
func TestCheckRefusesUnconditionalServer(t *testing.T) {
	cfg := s3test.Start(t).Config("weir")
	cfg.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		res, err := http.DefaultTransport.RoundTrip(r)
		if err == nil && res.StatusCode == http.StatusPreconditionFailed {
			res.StatusCode, res.Status = http.StatusOK, "200 OK"
			res.Header.Set("ETag", `"0"`)
		}
		return res, err
	})
	if err := open(t, cfg).Check(t.Context()); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "If-None-Match") {
		t.Fatalf("error is %v, want one about If-None-Match", err)
	}
}

// An answer that is lost after the object was made, and the repetition's "is there": success.
func TestPutAnswerLost(t *testing.T) {
	server := s3test.Start(t)
	cfg := server.Config("weir")
	if err := open(t, cfg).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	var lost atomic.Int64
	cfg.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		res, err := http.DefaultTransport.RoundTrip(r)
		if r.Method == http.MethodPut && err == nil && lost.Add(1) == 1 {
			_ = res.Body.Close()
			return nil, errors.New("connection reset by peer")
		}
		return res, err
	})
	s := open(t, cfg)
	if err := s.Put(t.Context(), "v/a", 5, strings.NewReader("hello")); err != nil {
		t.Fatal(err)
	}
	if lost.Load() < 2 {
		t.Fatal("the put was not repeated")
	}
	if i, err := s.Stat(t.Context(), "v/a"); err != nil || i.Size != 5 {
		t.Fatalf("%+v, %v", i, err)
	}
}

func TestServerGone(t *testing.T) {
	server := s3test.Start(t)
	s := open(t, server.Config("weir"))
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	err := s.Put(t.Context(), "v/a", 5, strings.NewReader("hello"))
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), server.Endpoint) {
		t.Errorf("put: %v", err)
	}
	if _, err := s.Stat(t.Context(), "v/a"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("stat: %v", err)
	}
	if err := s.List(t.Context(), "", func(store.Info) error { return nil }); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("list: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if err := s.Delete(ctx, "v/a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("delete: %v", err)
	}
	server.Restart()
	if err := s.Put(t.Context(), "v/a", 5, strings.NewReader("hello")); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}

// A bucket that somebody removed is not "no such object".
func TestBucketGone(t *testing.T) {
	s := open(t, s3test.Start(t).Config("never-made"))
	if err := s.GetRange(t.Context(), "a", 0, make([]byte, 1)); !errors.Is(err, store.ErrUnavailable) ||
		!strings.Contains(err.Error(), "bucket") {
		t.Errorf("get: %v", err)
	}
	if err := s.Delete(t.Context(), "a"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("delete: %v", err)
	}
}
