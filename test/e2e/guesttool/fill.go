// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
)

// stream is the content of a filled file. It does not compress, and it depends only on the seed.
func stream(seed string) *rand.ChaCha8 { return rand.NewChaCha8(sha256.Sum256([]byte(seed))) }

// fill writes so many MiB and fsyncs.
func fill(file, mib, seed string) error {
	n, err := strconv.Atoi(mib)
	if err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := io.CopyBuffer(f, io.LimitReader(stream(seed), int64(n)<<20), make([]byte, 1<<20)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

// check reads what fill wrote.
func check(file, mib, seed string) error {
	n, err := strconv.Atoi(mib)
	if err != nil {
		return err
	}
	if err := dropCache(file); err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // opened to read
	want, got, src := make([]byte, 1<<20), make([]byte, 1<<20), stream(seed)
	for i := range n {
		if _, err := io.ReadFull(src, want); err != nil {
			return err
		}
		if _, err := io.ReadFull(f, got); err != nil {
			return fmt.Errorf("read MiB %d: %w", i, err)
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("MiB %d is not what was written", i)
		}
	}
	if k, err := f.Read(got); k != 0 || err != io.EOF {
		return fmt.Errorf("%d bytes and %w after the end", k, err)
	}
	fmt.Printf("%d MiB, all right\n", n)
	return nil
}
