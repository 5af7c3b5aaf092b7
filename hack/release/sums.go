// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sums writes SHA256SUMS, as sha256sum checks it, and prints the paths of the files.
func (r *release) sums() error {
	slices.Sort(r.made)
	var list strings.Builder
	for _, name := range r.made {
		sum, err := sum(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%x  %s\n", sum, name)
		if _, err := fmt.Println(filepath.Join(r.out, name)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(list.String()), 0o644)
}

func sum(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	_, err = io.Copy(hash, f)
	return hash.Sum(nil), errors.Join(err, f.Close())
}
