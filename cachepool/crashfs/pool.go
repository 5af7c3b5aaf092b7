// SPDX-License-Identifier: Apache-2.0

package crashfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/weir-storage/weir/cachepool"
)

// pool is one process's view of a Disk; it implements cachepool.Pool.
type pool struct {
	disk   *Disk
	room   *cachepool.Room
	closed bool            // guarded by disk.mu
	locked map[string]bool // files that a database locked; guarded by disk.mu
}

var _ cachepool.Pool = (*pool)(nil)

func (p *pool) Gateway() string { return p.disk.cfg.Gateway }

func (p *pool) Incarnation() cachepool.ID {
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	return p.disk.id
}

func (p *pool) Boot() uint64 {
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	return p.disk.boot
}

func (p *pool) NewIncarnation() (cachepool.ID, error) {
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	if err := p.alive(); err != nil {
		return cachepool.ID{}, err
	}
	p.disk.id = p.disk.newID()
	p.disk.boot = 1
	return p.disk.id, nil
}

func (p *pool) alive() error {
	switch {
	case p.closed:
		return cachepool.ErrClosed
	case p.disk.session != p:
		return ErrCrashed
	}
	return nil
}

func (p *pool) Room() *cachepool.Room { return p.room }

func (p *pool) Close() error {
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	if err := p.alive(); err != nil {
		return err
	}
	p.closed, p.disk.session = true, nil
	return nil
}

func (p *pool) Volume(uuid string) (cachepool.Dir, error) {
	if err := cachepool.CheckName("volume", uuid); err != nil {
		return nil, err
	}
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	if err := p.alive(); err != nil {
		return nil, err
	}
	if p.disk.vols[uuid] == nil {
		p.disk.vols[uuid] = newDirectory()
	}
	return &dir{pool: p, d: p.disk.vols[uuid], uuid: uuid}, nil
}

func (p *pool) ListVolumes() ([]string, error) {
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	if err := p.alive(); err != nil {
		return nil, err
	}
	return append([]string{}, sortedKeys(p.disk.vols)...), nil
}

func (p *pool) RemoveVolume(uuid string) error {
	if err := cachepool.CheckName("volume", uuid); err != nil {
		return err
	}
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	if err := p.alive(); err != nil {
		return err
	}
	delete(p.disk.vols, uuid)
	return nil
}

// Rewound is always nil: what a crash takes is never what was durable.
func (p *pool) Rewound(string) error { return nil }

func (p *pool) Settled(string, error) error { return nil }

func (p *pool) Tune(string, cachepool.Tuning) {}

func (p *pool) RenameVolume(from, to string) error {
	if err := errors.Join(cachepool.CheckName("volume", from), cachepool.CheckName("volume", to)); err != nil {
		return err
	}
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	v := p.disk.vols[from]
	switch err := p.alive(); {
	case err != nil:
		return err
	case v == nil:
		return fmt.Errorf("rename volume %s: %w", from, fs.ErrNotExist)
	case p.disk.vols[to] != nil:
		return fmt.Errorf("rename volume %s to %s: %w", from, to, fs.ErrExist)
	}
	p.disk.vols[to] = v
	delete(p.disk.vols, from)
	return nil
}

// dir implements cachepool.Dir.
type dir struct {
	pool *pool
	d    *directory
	uuid string
}

func (v *dir) Path() string { return "/crashfs/" + v.pool.disk.cfg.Gateway + "/" + v.uuid }

func (v *dir) Ahead() int64 { return v.pool.disk.cfg.Ahead }

// do runs an operation on names as a step.
func (v *dir) do(op Op, names []string, f func() error) error {
	for _, n := range names {
		if err := cachepool.CheckName("file", n); err != nil {
			return err
		}
	}
	v.pool.disk.mu.Lock()
	defer v.pool.disk.mu.Unlock()
	return v.pool.disk.step(v.pool, op, v.uuid+"/"+strings.Join(names, " "), f, nil)
}

func (v *dir) Sync() error {
	return v.do(OpDirSync, nil, func() error { v.d.sync(); return nil })
}

func (v *dir) Create(name string) (cachepool.File, error) {
	f := &file{pool: v.pool, n: &inode{}, name: v.uuid + "/" + name}
	err := v.do(OpCreate, []string{name}, func() error {
		if v.d.names[name] != nil {
			return &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
		}
		v.d.change(naming{to: name, node: f.n})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (v *dir) Open(name string) (cachepool.File, error) {
	f := &file{pool: v.pool, name: v.uuid + "/" + name}
	err := v.do(OpRead, []string{name}, func() error {
		if f.n = v.d.names[name]; f.n == nil || f.n.dir != nil {
			return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (v *dir) Remove(name string) error {
	return v.do(OpRemove, []string{name}, func() error {
		if n := v.d.names[name]; n == nil || n.dir != nil {
			return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
		}
		v.d.change(naming{from: name})
		return nil
	})
}

func (v *dir) Rename(from, to string) error {
	return v.do(OpRename, []string{from, to}, func() error {
		n := v.d.names[from]
		if n == nil || n.dir != nil {
			return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
		}
		v.d.change(naming{from: from, to: to, node: n})
		return nil
	})
}

func (v *dir) List() ([]cachepool.FileInfo, error) {
	out := []cachepool.FileInfo{}
	err := v.do(OpRead, nil, func() error {
		for _, name := range sortedKeys(v.d.names) {
			if n := v.d.names[name]; n.dir == nil {
				out = append(out, cachepool.FileInfo{Name: name, Size: int64(len(n.data))})
			}
		}
		return nil
	})
	return out, err
}

// file implements cachepool.File.
type file struct {
	pool   *pool
	n      *inode
	name   string // volume and path
	closed bool
	failed error // of a Sync
}

// do runs an operation as a step.
func (f *file) do(op Op, do func() error, failed func()) error {
	f.pool.disk.mu.Lock()
	defer f.pool.disk.mu.Unlock()
	if f.closed {
		return fmt.Errorf("%s file %s: %w", op, f.name, cachepool.ErrClosed)
	}
	if err := f.pool.disk.step(f.pool, op, f.name, do, failed); err != nil {
		if errors.Is(err, io.EOF) {
			return err
		}
		return fmt.Errorf("%s file %s: %w", op, f.name, err)
	}
	return nil
}

func (f *file) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.do(OpRead, func() error {
		if off < 0 {
			return fs.ErrInvalid
		}
		if off < int64(len(f.n.data)) {
			n = copy(p, f.n.data[off:])
		}
		if n < len(p) {
			return io.EOF
		}
		return nil
	}, nil)
	return n, err
}

func (f *file) WriteAt(p []byte, off int64) (n int, err error) {
	write := func(n int) error {
		if off < 0 {
			return fs.ErrInvalid
		}
		if n > 0 {
			f.n.change(change{off, append([]byte(nil), p[:n]...)})
		}
		return nil
	}
	err = f.do(OpWrite, func() error { n = len(p); return write(n) }, func() {
		n = f.pool.disk.cfg.Rand.IntN(len(p) + 1)
		_ = write(n) // the caller hears of the fault
	})
	if err != nil && off < 0 {
		n = 0
	}
	return n, err
}

func (f *file) Truncate(size int64) error {
	return f.do(OpTruncate, func() error {
		if size < 0 {
			return fs.ErrInvalid
		}
		f.n.change(change{off: size})
		return nil
	}, nil)
}

func (f *file) Size() (size int64, err error) {
	err = f.do(OpRead, func() error { size = int64(len(f.n.data)); return nil }, nil)
	return size, err
}

func (f *file) Sync() error {
	return f.do(OpSync, func() error {
		if f.failed == nil {
			f.n.sync()
		}
		return f.failed
	}, func() { f.failed = ErrIO; f.n.syncFailed() })
}

func (f *file) Forget() error {
	return f.do(OpRead, func() error { f.n.forget(f.pool.disk.cfg.Rand); return nil }, nil)
}

func (f *file) Close() error {
	f.pool.disk.mu.Lock()
	defer f.pool.disk.mu.Unlock()
	if f.closed {
		return fmt.Errorf("close file %s: %w", f.name, cachepool.ErrClosed)
	}
	f.closed = true
	return nil
}
