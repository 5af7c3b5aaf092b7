// SPDX-License-Identifier: Apache-2.0

package cryptfs

import (
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	magic      = "WEIRPBL1"
	headerSize = 32
)

// file is an encrypted file. Reads at offsets may run concurrently. Read and Write may not, as
// vfs.File says.
type file struct {
	vfs.File
	block   cipher.Block
	iv      [16]byte
	started bool // it has a header
	write   cipher.Stream
	read    int64 // offset of the next Read
}

// Write encrypts p in place, which vfs.File allows, and appends it.
func (f *file) Write(p []byte) (int, error) {
	if !f.started {
		return 0, errors.New("cryptfs: file was opened for reading")
	}
	if f.write == nil {
		f.write = f.stream(0)
	}
	f.write.XORKeyStream(p, p)
	return f.File.Write(p)
}

// WriteAt refuses, because of cryptfs-1.
func (f *file) WriteAt([]byte, int64) (int, error) {
	return 0, errors.New("cryptfs: files can not be updated in place")
}

// Read implements vfs.File.
func (f *file) Read(p []byte) (int, error) {
	n, err := f.ReadAt(p, f.read)
	f.read += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// ReadAt implements vfs.File.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if !f.started {
		return 0, io.EOF
	}
	n, err := f.File.ReadAt(p, off+headerSize)
	f.stream(off).XORKeyStream(p[:n], p[:n])
	return n, err
}

// stream returns the key stream from byte off of the content.
func (f *file) stream(off int64) cipher.Stream {
	hi, lo := binary.BigEndian.Uint64(f.iv[:8]), binary.BigEndian.Uint64(f.iv[8:])
	lo, carry := bits.Add64(lo, uint64(off)/16, 0)
	var counter [16]byte
	binary.BigEndian.PutUint64(counter[:8], hi+carry)
	binary.BigEndian.PutUint64(counter[8:], lo)
	s := cipher.NewCTR(f.block, counter[:])
	if skip := off % 16; skip > 0 {
		var drop [16]byte
		s.XORKeyStream(drop[:skip], drop[:skip])
	}
	return s
}

// Preallocate implements vfs.File.
func (f *file) Preallocate(offset, length int64) error {
	return f.File.Preallocate(offset+headerSize, length)
}

// Stat implements vfs.File.
func (f *file) Stat() (vfs.FileInfo, error) {
	info, err := f.File.Stat()
	if err != nil {
		return nil, err
	}
	return sized(info), nil
}

// SyncTo implements vfs.File.
func (f *file) SyncTo(length int64) (bool, error) { return f.File.SyncTo(length + headerSize) }

// Prefetch implements vfs.File.
func (f *file) Prefetch(offset, length int64) error {
	return f.File.Prefetch(offset+headerSize, length)
}

// Fd hides the descriptor, so that nothing bypasses the encryption.
func (f *file) Fd() uintptr { return vfs.InvalidFd }
