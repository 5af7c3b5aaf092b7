// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"github.com/weir-storage/weir/engine/segment"
)

// BenchmarkRaw is what this machine does alone with each step of a write of 1 MiB that does not
// compress. It tells what BenchmarkBeside can reach here.
func BenchmarkRaw(b *testing.B) {
	p := make([]byte, 1<<20)
	_, _ = rand.Read(p) // never fails
	each := func(name string, f func(i int) error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(1 << 20)
			for i := 0; b.Loop(); i++ {
				if err := f(i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	block, err := aes.NewCipher(make([]byte, 32))
	if err != nil {
		b.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		b.Fatal(err)
	}
	sealed := make([]byte, 0, segment.MaxBlock+segment.TagSize)
	each("aes-gcm", func(int) error {
		for off := 0; off < len(p); off += segment.MaxBlock {
			aead.Seal(sealed, make([]byte, 12), p[off:off+segment.MaxBlock], nil)
		}
		return nil
	})
	h := blake3.New()
	each("blake3", func(int) error { _, err := h.Write(p); return err })
	each("crc32c", func(int) error { crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)); return nil })
	to := make([]byte, len(p))
	each("copy", func(int) error { copy(to, p); return nil })
	each("pack", func(int) error {
		for off := 0; off < len(p); off += segment.MaxBlock {
			segment.Pack(p[off:off+segment.MaxBlock], segment.Fast)
		}
		return nil
	})
	const size = 256 // writes before the file begins anew
	for name, every := range map[string]int{"write": 0, "write-fsync-each": 1, "write-fsync-8MiB": 8} {
		f, err := os.Create(filepath.Join(b.TempDir(), "f"))
		if err != nil {
			b.Fatal(err)
		}
		each(name, func(i int) error {
			var errs []error
			if i%size == 0 {
				errs = append(errs, f.Truncate(0))
			}
			_, err := f.WriteAt(p, int64(i%size)<<20)
			if errs = append(errs, err); every > 0 && i%every == every-1 {
				errs = append(errs, f.Sync())
			}
			return errors.Join(errs...)
		})
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRawRead is what this machine takes to read some bytes of a file from the disk. A block
// is verified as a whole, so it tells what random reads of BenchmarkBeside can reach here with
// blocks of each size.
func BenchmarkRawRead(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "f"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }() // nothing in it is kept
	const size = 256                 // MiB
	p := make([]byte, 1<<20)
	_, _ = rand.Read(p) // never fails
	for i := range size {
		if _, err := f.WriteAt(p, int64(i)<<20); err != nil {
			b.Fatal(err)
		}
	}
	for _, kib := range []int{4, 8, 16, 32, 64} {
		b.Run(fmt.Sprintf("%dKiB", kib), func(b *testing.B) {
			// What is read again comes from memory: a run that is long begins anew.
			limit := size << 10 / kib / 8
			for i := 0; b.Loop(); i++ {
				if i%limit == 0 {
					b.StopTimer()
					err := errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
					if err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				at := int64(mathrand.IntN(size<<10/kib)) * int64(kib) << 10
				if _, err := f.ReadAt(p[:kib<<10], at); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
