// SPDX-License-Identifier: Apache-2.0

// Package archive keeps a gateway's copy of the registry's records on its disk (protocol-7).
package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/federation"
)

// Archive is a federation.Archive in a folder. Its methods may be called from many goroutines.
type Archive struct {
	db  *pebble.DB
	now func() time.Time

	mu    sync.Mutex // held by what reads and then writes
	swept time.Time
}

var _ federation.Archive = (*Archive)(nil)

// A record in the database: the key is the registry's key.
type entry struct {
	Value    []byte              `json:"value,omitempty"`
	Revision federation.Revision `json:"revision"`
	Deleted  bool                `json:"deleted,omitempty"`
	Gone     int64               `json:"gone,omitempty"` // when it was deleted, in seconds since 1970
}

// rememberDeleted is how long the name of a deleted record is kept. A gateway that sleeps for
// longer may bring the record back when the registry is restored.
const rememberDeleted = 90 * 24 * time.Hour

// memory bounds what a database keeps in memory before it writes it out, in bytes. It holds records
// of a few hundred bytes, which change rarely.
const memory = 1 << 20

// Open opens the archive in a folder of fs, and makes it if it is not there. One process may have
// it open. Close it after use. By now's time it forgets names of records that were deleted long
// ago.
func Open(fs vfs.FS, dir string, now func() time.Time) (*Archive, error) {
	db, err := pebble.Open(dir, &pebble.Options{FS: fs, MemTableSize: memory, Logger: quiet{}})
	if err != nil {
		return nil, fmt.Errorf("open the archive of the registry in %s: %w", dir, err)
	}
	return &Archive{db: db, now: now}, nil
}

// quiet drops what the database says: errors come back from its methods.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf("archive of the registry: "+format, args...))
}

// Close closes the archive.
func (a *Archive) Close() error { return a.db.Close() }

// Get implements federation.Archive.
func (a *Archive) Get(key string) (federation.Record, bool, error) {
	value, done, err := a.db.Get([]byte(key))
	if errors.Is(err, pebble.ErrNotFound) {
		return federation.Record{}, false, nil
	}
	if err != nil {
		return federation.Record{}, false, failed(err)
	}
	r, err := decode(key, value)
	return r, err == nil, errors.Join(err, done.Close())
}

// List implements federation.Archive.
func (a *Archive) List(prefix string) (out []federation.Record, err error) {
	options := &pebble.IterOptions{UpperBound: end(prefix)}
	if prefix != "" {
		options.LowerBound = []byte(prefix)
	}
	it, err := a.db.NewIter(options)
	if err != nil {
		return nil, failed(err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, failed(err)
		}
		r, err := decode(string(it.Key()), value)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// Put implements federation.Archive.
func (a *Archive) Put(records []federation.Record) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var news []federation.Record
	for _, r := range records {
		old, ok, err := a.Get(r.Key)
		if err != nil {
			return err
		}
		if !ok || old.Revision < r.Revision {
			news = append(news, r)
		}
	}
	if len(news) == 0 {
		return nil
	}
	b := a.db.NewBatch()
	err := a.sweep(b) // first: a record of now may have the key of one that was deleted long ago
	for _, r := range news {
		err = errors.Join(err, a.set(b, r))
	}
	if err != nil {
		return errors.Join(err, b.Close())
	}
	return commit(b)
}

// sweep drops what was deleted long ago, once a day. The caller holds a.mu.
func (a *Archive) sweep(b *pebble.Batch) (err error) {
	now := a.now()
	if now.Sub(a.swept) < 24*time.Hour {
		return nil
	}
	it, err := a.db.NewIter(&pebble.IterOptions{})
	if err != nil {
		return failed(err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return failed(err)
		}
		var e entry
		if json.Unmarshal(value, &e) == nil && e.Deleted && e.Gone < now.Add(-rememberDeleted).Unix() {
			if err := b.Delete(it.Key(), nil); err != nil {
				return failed(err)
			}
		}
	}
	a.swept = now
	return nil
}

// Replace implements federation.Archive.
func (a *Archive) Replace(records []federation.Record) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.db.NewBatch()
	err := b.DeleteRange([]byte{0}, []byte{0xff}, nil) // keys are printable
	for _, r := range records {
		err = errors.Join(err, a.set(b, r))
	}
	if err != nil {
		return errors.Join(failed(err), b.Close())
	}
	return commit(b)
}

func (a *Archive) set(b *pebble.Batch, r federation.Record) error {
	e := entry{Value: r.Value, Revision: r.Revision, Deleted: r.Deleted}
	if r.Deleted {
		e.Gone = a.now().Unix()
	}
	value, err := json.Marshal(e)
	if err != nil {
		return failed(err)
	}
	return b.Set([]byte(r.Key), value, nil)
}

func commit(b *pebble.Batch) error {
	if err := b.Commit(pebble.Sync); err != nil {
		return failed(err)
	}
	return nil
}

func decode(key string, value []byte) (federation.Record, error) {
	var e entry
	if err := json.Unmarshal(value, &e); err != nil {
		return federation.Record{}, fmt.Errorf("archive of the registry: record %s: %w: "+
			"remove the archive's folder when the registry is as it was, and start the gateway again", key, err)
	}
	return federation.Record{Key: key, Value: e.Value, Revision: e.Revision, Deleted: e.Deleted}, nil
}

// end returns the first key after all that begin with prefix; nil for "": there is none.
func end(prefix string) []byte {
	if prefix == "" {
		return nil
	}
	b := []byte(prefix)
	b[len(b)-1]++ // prefixes end in a printable character
	return b
}

func failed(err error) error { return fmt.Errorf("archive of the registry: %w", err) }
