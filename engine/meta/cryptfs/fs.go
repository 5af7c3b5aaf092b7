// SPDX-License-Identifier: Apache-2.0

package cryptfs

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is a vfs.FS that encrypts the content of the files of another one.
type FS struct {
	vfs.FS
	block cipher.Block
	rand  io.Reader
}

var _ vfs.FS = (*FS)(nil)

// New returns a file system over inner whose key is derived from dataKey. It reads the initial
// counter blocks from rand, which must be a secure random source.
func New(inner vfs.FS, dataKey [32]byte, rand io.Reader) (*FS, error) {
	key, err := hkdf.Key(sha256.New, dataKey[:], nil, "weir pebble", 32)
	if err != nil {
		return nil, fmt.Errorf("cryptfs: derive key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("cryptfs: %w", err)
	}
	return &FS{FS: inner, block: block, rand: rand}, nil
}

// Create implements vfs.FS.
func (fs *FS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	inner, err := fs.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	f := &file{File: inner, block: fs.block, started: true}
	header := make([]byte, headerSize)
	copy(header, magic)
	if _, err := io.ReadFull(fs.rand, f.iv[:]); err != nil {
		return nil, errors.Join(fmt.Errorf("cryptfs create %s: random source: %w", name, err), inner.Close())
	}
	copy(header[len(magic):], f.iv[:])
	if _, err := inner.Write(header); err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	return f, nil
}

// Open implements vfs.FS.
func (fs *FS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	inner, err := fs.FS.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	f := &file{File: inner, block: fs.block}
	header := make([]byte, headerSize)
	switch n, err := inner.ReadAt(header, 0); {
	case n == headerSize:
		if string(header[:len(magic)]) != magic {
			return nil, errors.Join(fmt.Errorf("cryptfs open %s: not an encrypted file of this format", name), inner.Close())
		}
		copy(f.iv[:], header[len(magic):])
		f.started = true
	case err != nil && !errors.Is(err, io.EOF):
		return nil, errors.Join(err, inner.Close())
	}
	return f, nil
}

// OpenReadWrite refuses, because of cryptfs-1. Pebble does not need it here.
func (fs *FS) OpenReadWrite(name string, _ vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	return nil, fmt.Errorf("cryptfs open %s: files can not be updated in place", name)
}

// ReuseForWrite implements vfs.FS by making a new file, because of cryptfs-1.
func (fs *FS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := fs.Remove(oldname); err != nil {
		return nil, err
	}
	return fs.Create(newname, category)
}

// Stat implements vfs.FS.
func (fs *FS) Stat(name string) (vfs.FileInfo, error) {
	info, err := fs.FS.Stat(name)
	if err != nil {
		return nil, err
	}
	return sized(info), nil
}

// Unwrap implements vfs.FS.
func (fs *FS) Unwrap() vfs.FS { return fs.FS }

// fileInfo reports the size of the content, without the header.
type fileInfo struct{ vfs.FileInfo }

func (i fileInfo) Size() int64 { return max(0, i.FileInfo.Size()-headerSize) }

func sized(info vfs.FileInfo) vfs.FileInfo {
	if info.Mode()&os.ModeType != 0 {
		return info
	}
	return fileInfo{info}
}
