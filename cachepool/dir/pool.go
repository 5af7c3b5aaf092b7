// SPDX-License-Identifier: Apache-2.0

// Package dir is a pool in a directory of any local file system.
//
//	pool.lock        locked (flock) while the pool is open; has the process's id, for messages
//	pool.json        {"version":1,"gateway":"…","incarnation":"<32 hex digits>","boot":N},
//	                 replaced by rename
//	volumes/<uuid>/  one volume
//
// The file system must keep what fsync promises: no network file system.
package dir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/weir-storage/weir/cachepool"
)

// Config is how to open a pool.
type Config struct {
	// Path is made if it is missing.
	Path string
	// Gateway owns the pool; the first to open it is its owner.
	Gateway string
	// Limit of the pool's room in bytes; 0: nine tenths of what its file system has left, and of
	// what the pool has.
	Limit int64
	// Random is the source of incarnations, cryptographic outside tests.
	Random io.Reader
	// Folders returns those of the volumes, once the pool is this process's; nil: they are beside
	// each other in the pool's folder volumes.
	Folders func() (Folders, error)
	// Newest is the newest identity, as far as somebody else remembers it: pool.json may have gone
	// back.
	Newest Identity
	// Anew says why pool.json, if it is there, is not believed: it may have gone back with all who
	// remember it; nil: it is.
	Anew error
	// Log hears of a new incarnation; nil: nobody does.
	Log *slog.Logger
}

// Identity is a pool's at one opening.
type Identity struct {
	Incarnation cachepool.ID // zero: none
	Boot        uint64
}

// identity is pool.json.
type identity struct {
	Version     int    `json:"version"`
	Gateway     string `json:"gateway"`
	Incarnation string `json:"incarnation"`
	Boot        uint64 `json:"boot"`
}

const identityVersion = 1

// Pool is an open pool.
type Pool struct {
	cfg  Config
	lock *os.File
	room *cachepool.Room

	folders Folders

	mu   sync.Mutex
	self identity
	id   cachepool.ID
	open bool
}

var _ cachepool.Pool = (*Pool)(nil)

// Open opens a pool, or makes one in an empty or missing directory. Errors name the path:
// cachepool.ErrLocked, ErrForeign, ErrInvalid.
func Open(cfg Config) (_ *Pool, err error) {
	p := &Pool{cfg: cfg, open: true}
	if cfg.Log == nil {
		p.cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := cachepool.CheckName("gateway", cfg.Gateway); err != nil {
		return nil, p.fail("open", err, "")
	}
	if err := makeFolder(cfg.Path); err != nil {
		return nil, p.fail("open", err, "give it a directory that this user can write")
	}
	if err := p.takeLock(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = p.lock.Close()
		}
	}()
	if err := p.begin(); err != nil {
		return nil, err
	}
	if cfg.Folders == nil {
		cfg.Folders = func() (Folders, error) { return newPlain(filepath.Join(cfg.Path, "volumes")) }
	}
	if p.folders, err = cfg.Folders(); err != nil {
		return nil, p.fail("open", err, "")
	}
	used, err := p.used()
	if err != nil {
		return nil, p.fail("open", err, "")
	}
	limit := cfg.Limit
	if limit == 0 {
		var st syscall.Statfs_t
		if err := syscall.Statfs(cfg.Path, &st); err != nil {
			return nil, p.fail("open", err, "")
		}
		limit = (int64(st.Bavail)*st.Bsize + used) / 10 * 9
	}
	p.room = cachepool.NewRoom(cfg.Path, limit, used)
	return p, nil
}

// makeFolder makes a folder and those above it that are missing, durably: a pool is worth no more
// than its name.
func makeFolder(path string) error {
	above := filepath.Dir(path)
	switch _, err := os.Stat(path); {
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return err
	case above != path:
		if err := makeFolder(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(above)
}

func (p *Pool) fail(op string, err error, remedy string) error {
	if remedy != "" {
		return fmt.Errorf("%s pool %s: %w: %s", op, p.cfg.Path, err, remedy)
	}
	return fmt.Errorf("%s pool %s: %w", op, p.cfg.Path, err)
}

func (p *Pool) takeLock() error {
	f, err := os.OpenFile(filepath.Join(p.cfg.Path, "pool.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return p.fail("open", err, "give it a directory that this user can write")
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		owner, _ := io.ReadAll(io.LimitReader(f, 20))
		_ = f.Close()
		return p.fail("open", fmt.Errorf("%w (process %s)", cachepool.ErrLocked, strings.TrimSpace(string(owner))),
			"stop that gateway, or give this one a pool of its own")
	}
	if err != nil {
		_ = f.Close()
		return p.fail("open", err, "its file system cannot lock files (flock): use a local one")
	}
	p.lock = f
	// For people who read the message above; the lock itself does not need it.
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintln(f, os.Getpid())
	}
	return nil
}

// begin reads the identity and counts this opening.
func (p *Pool) begin() error {
	text, err := os.ReadFile(p.identityPath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return p.fail("open", err, "")
	}
	var id cachepool.ID
	if err == nil {
		err = json.Unmarshal(text, &p.self)
		if err == nil && p.self.Version > identityVersion {
			return p.fail("open", fmt.Errorf("%w: pool.json has version %d, this program knows up to %d", cachepool.ErrInvalid,
				p.self.Version, identityVersion), "upgrade this program")
		}
		if err == nil {
			id, err = cachepool.ParseID(p.self.Incarnation)
		}
	}
	if err == nil && p.self.Gateway != p.cfg.Gateway {
		return p.fail("open", fmt.Errorf("%w, %s", cachepool.ErrForeign, p.self.Gateway),
			fmt.Sprintf("start gateway %s on it, or give gateway %s an empty directory", p.self.Gateway, p.cfg.Gateway))
	}
	if err == nil && p.cfg.Anew != nil {
		err = p.cfg.Anew
	}
	if newest := p.cfg.Newest.Incarnation; err == nil && !newest.IsZero() && newest != id {
		err = fmt.Errorf("it is %s, but was %s", id, newest)
	}
	if err != nil {
		// Missing, or not to be trusted: logs that may be here are nobody's any more.
		p.self = identity{}
		_, err := p.renew("its identity is missing or damaged: " + err.Error())
		return err
	}
	p.id = id
	p.self.Boot = max(p.self.Boot, p.cfg.Newest.Boot) + 1
	return p.store()
}

// NewIncarnation implements cachepool.Identity.
func (p *Pool) NewIncarnation() (cachepool.ID, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.open {
		return cachepool.ID{}, p.fail("renew", cachepool.ErrClosed, "")
	}
	return p.renew("asked for")
}

func (p *Pool) renew(why string) (cachepool.ID, error) {
	id, err := cachepool.NewID(p.cfg.Random)
	if err != nil {
		return cachepool.ID{}, p.fail("renew", err, "")
	}
	old := p.self
	p.self = identity{Version: identityVersion, Gateway: p.cfg.Gateway, Incarnation: id.String(), Boot: 1}
	if err := p.store(); err != nil {
		p.self = old
		return cachepool.ID{}, err
	}
	p.id = id
	p.cfg.Log.Info("pool has a new incarnation", "pool", p.cfg.Path, "incarnation", id, "why", why)
	return id, nil
}

func (p *Pool) identityPath() string { return filepath.Join(p.cfg.Path, "pool.json") }

func (p *Pool) store() error {
	text, err := json.Marshal(p.self)
	if err == nil {
		err = replace(p.identityPath(), append(text, '\n'))
	}
	switch {
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return p.fail("write", err, "make room on its file system, or make that larger: each start is noted there")
	case err != nil:
		return p.fail("write", err, "")
	}
	return nil
}

// replace writes a file durably, whole or not at all.
func replace(path string, text []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// Gateway implements cachepool.Identity.
func (p *Pool) Gateway() string { return p.cfg.Gateway }

// Incarnation implements cachepool.Identity.
func (p *Pool) Incarnation() cachepool.ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id
}

// Boot implements cachepool.Identity.
func (p *Pool) Boot() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.self.Boot
}

// Room implements cachepool.Pool.
func (p *Pool) Room() *cachepool.Room { return p.room }

// Close implements cachepool.Pool.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.open {
		return p.fail("close", cachepool.ErrClosed, "")
	}
	p.open = false
	if err := p.lock.Close(); err != nil { // which unlocks
		return p.fail("close", err, "")
	}
	return nil
}

func (p *Pool) closed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.open
}
