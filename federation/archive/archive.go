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

	"github.com/weir-storage/weir/cachepool/failstop"
	"github.com/weir-storage/weir/federation"
)

// Archive is a federation.Archive in a folder. Its methods may be called from many goroutines. When
// the disk fails, they return why, until the archive could be opened again: what it said since the
// disk knows nobody.
type Archive struct {
	fs  vfs.FS
	dir string
	now func() time.Time

	mu sync.Mutex // held by what reads and then writes

	opening sync.Mutex
	open    *database // the last; guarded by opening
	err     error     // why it is not used any more; guarded by opening, as all below
	until   time.Time // it is not opened again before
	wait    time.Duration
}

// database is an archive's database, from an opening to the failure of its disk.
type database struct {
	*pebble.DB
	disk  *failstop.FS
	used  sync.RWMutex // held for reading by who uses it, and to close it
	swept time.Time    // when it dropped what was deleted long ago; guarded by Archive.mu
}

// How long to wait before an archive whose disk failed is opened again.
const (
	againFirst = time.Second
	againMost  = time.Minute
)

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
	a := &Archive{fs: fs, dir: dir, now: now}
	db, err := a.begin()
	if err != nil {
		return nil, err
	}
	a.open = db
	return a, nil
}

// begin opens the database.
func (a *Archive) begin() (*database, error) {
	disk, err := failstop.New(a.fs, a.dir, nil)
	if err != nil {
		return nil, fmt.Errorf("open the archive of the registry: %w", err)
	}
	var db *pebble.DB
	err = disk.Do(func() (err error) {
		db, err = pebble.Open(a.dir, &pebble.Options{FS: disk, MemTableSize: memory, Logger: quiet{disk}})
		return err
	})
	if err == nil {
		return &database{DB: db, disk: disk}, nil
	}
	if disk.Err() != nil {
		disk.Abandon(nil)
	}
	return nil, fmt.Errorf("open the archive of the registry in %s: %w", a.dir, err)
}

// database returns the open database, or why there is none. Of one whose disk failed it opens the
// folder again, when it is time.
func (a *Archive) database() (*database, error) {
	a.opening.Lock()
	defer a.opening.Unlock()
	if a.err == nil && a.open.disk.Err() == nil {
		return a.open, nil
	}
	now := a.now()
	if a.err == nil { // it has just failed
		old := a.open
		old.disk.Abandon(func() error {
			old.used.Lock()
			defer old.used.Unlock()
			return old.DB.Close()
		})
		a.err = fmt.Errorf("its folder is %s: %w", a.dir, old.disk.Err())
		a.wait = againFirst
		a.until = now.Add(a.wait)
	}
	if now.Before(a.until) && a.until.Sub(now) <= againMost { // the clock may have been set back
		return nil, a.err
	}
	db, err := a.begin()
	if err != nil {
		a.err, a.wait = err, min(2*a.wait, againMost)
		a.until = now.Add(a.wait)
		return nil, err
	}
	a.open, a.err = db, nil
	return db, nil
}

// read calls f with the database.
func (a *Archive) read(f func(db *pebble.DB) error) error {
	db, err := a.database()
	if err != nil {
		return failed(err)
	}
	db.used.RLock()
	defer db.used.RUnlock()
	if err := db.disk.Err(); err != nil { // it may be closed
		return failed(err)
	}
	return f(db.DB)
}

// write calls f with the database. When the disk fails meanwhile, nobody waits for f.
func (a *Archive) write(f func(db *database) error) error {
	db, err := a.database()
	if err == nil {
		err = db.disk.Do(func() error {
			db.used.RLock()
			defer db.used.RUnlock()
			if err := db.disk.Err(); err != nil {
				return err
			}
			return f(db)
		})
	}
	if err != nil {
		return failed(err)
	}
	return nil
}

// quiet drops what the database says: errors come back from its methods.
type quiet struct{ disk *failstop.FS }

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (q quiet) Fatalf(format string, args ...any) {
	q.disk.Fatal(fmt.Sprintf("archive of the registry: "+format, args...))
}

// Close closes the archive. Nobody may use it meanwhile, or after.
func (a *Archive) Close() error {
	a.opening.Lock()
	defer a.opening.Unlock()
	if a.err != nil {
		return nil // who used it was told
	}
	err := a.open.disk.Do(a.open.DB.Close)
	if a.open.disk.Err() != nil {
		a.open.disk.Abandon(nil)
	}
	return err
}

// Get implements federation.Archive.
func (a *Archive) Get(key string) (r federation.Record, ok bool, err error) {
	err = a.read(func(db *pebble.DB) error {
		r, ok, err = get(db, key)
		return err
	})
	return r, ok, err
}

func get(db *pebble.DB, key string) (federation.Record, bool, error) {
	value, done, err := db.Get([]byte(key))
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
	err = a.read(func(db *pebble.DB) error {
		out, err = list(db, prefix)
		return err
	})
	return out, err
}

func list(db *pebble.DB, prefix string) (out []federation.Record, err error) {
	options := &pebble.IterOptions{UpperBound: end(prefix)}
	if prefix != "" {
		options.LowerBound = []byte(prefix)
	}
	it, err := db.NewIter(options)
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
	if len(records) == 0 {
		return nil // nothing is kept of most changes, also while the disk fails
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.write(func(db *database) error { return a.put(db, records) })
}

func (a *Archive) put(db *database, records []federation.Record) error {
	var news []federation.Record
	for _, r := range records {
		old, ok, err := get(db.DB, r.Key)
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
	b := db.NewBatch()
	err := a.sweep(db, b) // first: a record of now may have the key of one that was deleted long ago
	for _, r := range news {
		err = errors.Join(err, a.set(b, r))
	}
	if err != nil {
		return errors.Join(err, b.Close())
	}
	return b.Commit(pebble.Sync)
}

// sweep drops what was deleted long ago, once a day.
func (a *Archive) sweep(db *database, b *pebble.Batch) (err error) {
	now := a.now()
	if now.Sub(db.swept) < 24*time.Hour {
		return nil
	}
	it, err := db.NewIter(&pebble.IterOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		var e entry
		if json.Unmarshal(value, &e) == nil && e.Deleted && e.Gone < now.Add(-rememberDeleted).Unix() {
			if err := b.Delete(it.Key(), nil); err != nil {
				return err
			}
		}
	}
	db.swept = now
	return nil
}

// Replace implements federation.Archive.
func (a *Archive) Replace(records []federation.Record) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.write(func(db *database) error { return a.replace(db, records) })
}

func (a *Archive) replace(db *database, records []federation.Record) error {
	b := db.NewBatch()
	err := b.DeleteRange([]byte{0}, []byte{0xff}, nil) // keys are printable
	for _, r := range records {
		err = errors.Join(err, a.set(b, r))
	}
	if err != nil {
		return errors.Join(err, b.Close())
	}
	return b.Commit(pebble.Sync)
}

func (a *Archive) set(b *pebble.Batch, r federation.Record) error {
	e := entry{Value: r.Value, Revision: r.Revision, Deleted: r.Deleted}
	if r.Deleted {
		e.Gone = a.now().Unix()
	}
	value, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return b.Set([]byte(r.Key), value, nil)
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
