// SPDX-License-Identifier: Apache-2.0

// Package memory is a store in memory, for tests, with faults and damage on demand.
package memory

import (
	"bytes"
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-storage/weir/store"
)

// Store is a store in memory. Modified times count seconds since 1970 from the first Put: no clock
// is read.
type Store struct {
	mu      sync.Mutex
	objects map[string]object
	puts    int64
	fault   func(op, name string) error
}

type object struct {
	data     []byte
	modified time.Time
}

var _ store.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store { return &Store{objects: map[string]object{}} }

// SetFault has f called before each operation ("put", "get", "stat", "list", "delete"); an error of
// f is the operation's, wrapped in a store.Error, and nothing is done. Nil ends it. F must not call
// the store.
func (s *Store) SetFault(f func(op, name string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Damage changes an object behind everybody's back, for tests of scrubbing: f returns the new
// contents. A missing object is created from nil.
func (s *Store) Damage(name string, f func(data []byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[name]
	o.data = f(slices.Clone(o.data))
	s.objects[name] = o
}

func (s *Store) begin(ctx context.Context, op, name string) error {
	if err := ctx.Err(); err != nil {
		return s.fail(op, name, err)
	}
	if op != "list" {
		if err := store.CheckName(name); err != nil {
			return err
		}
	}
	if s.fault != nil {
		if err := s.fault(op, name); err != nil {
			return s.fail(op, name, err)
		}
	}
	return nil
}

func (s *Store) fail(op, name string, err error) error {
	return &store.Error{Op: op, Store: "memory", Name: name, Err: err}
}

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, name string, size int64, body io.ReadSeeker) error {
	return s.put(ctx, name, size, body, false)
}

// Replace implements store.Replacer. For faults it is a put.
func (s *Store) Replace(ctx context.Context, name string, size int64, body io.ReadSeeker) error {
	return s.put(ctx, name, size, body, true)
}

func (s *Store) put(ctx context.Context, name string, size int64, body io.ReadSeeker, replace bool) error {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return s.fail("put", name, err)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return s.fail("put", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin(ctx, "put", name); err != nil {
		return err
	}
	if int64(len(data)) != size {
		return s.fail("put", name, store.ErrInvalid)
	}
	if o, ok := s.objects[name]; ok && !replace {
		if int64(len(o.data)) != size {
			return s.fail("put", name, store.ErrConflict)
		}
		return nil
	}
	s.puts++
	s.objects[name] = object{data: data, modified: time.Unix(s.puts, 0).UTC()}
	return nil
}

// GetRange implements store.Store.
func (s *Store) GetRange(ctx context.Context, name string, off int64, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin(ctx, "get", name); err != nil {
		return err
	}
	if off < 0 {
		return s.fail("get", name, store.ErrInvalid)
	}
	if len(p) == 0 {
		return nil
	}
	o, ok := s.objects[name]
	if !ok {
		return s.fail("get", name, store.ErrNotExist)
	}
	if n, _ := bytes.NewReader(o.data).ReadAt(p, off); n < len(p) {
		return s.fail("get", name, store.ErrShort)
	}
	return nil
}

// Stat implements store.Store.
func (s *Store) Stat(ctx context.Context, name string) (store.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin(ctx, "stat", name); err != nil {
		return store.Info{}, err
	}
	o, ok := s.objects[name]
	if !ok {
		return store.Info{}, s.fail("stat", name, store.ErrNotExist)
	}
	return store.Info{Name: name, Size: int64(len(o.data)), Modified: o.modified}, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string, fn func(store.Info) error) error {
	s.mu.Lock()
	err := s.begin(ctx, "list", prefix)
	var infos []store.Info
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasPrefix(name, prefix) {
			o := s.objects[name]
			infos = append(infos, store.Info{Name: name, Size: int64(len(o.data)), Modified: o.modified})
		}
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	for _, i := range infos {
		if err := fn(i); err != nil {
			return err
		}
	}
	return nil
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin(ctx, "delete", name); err != nil {
		return err
	}
	delete(s.objects, name)
	return nil
}
