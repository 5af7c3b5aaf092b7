// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Write writes name.crt and name.key into a folder, the key for its owner's eyes only. It replaces
// nothing: a key that is in use would be lost.
func (p Pair) Write(dir, name string) (cert, key string, err error) {
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", fmt.Errorf("write certificate %s: %w", name, err)
	}
	for _, f := range []struct {
		path string
		text []byte
		mode fs.FileMode
	}{{key, p.Key, 0o600}, {cert, p.Cert, 0o644}} {
		if err := create(f.path, f.text, f.mode); err != nil {
			if errors.Is(err, fs.ErrExist) {
				return "", "", fmt.Errorf("write certificate %s: %w: remove the old one if nobody uses it", name, err)
			}
			return "", "", fmt.Errorf("write certificate %s: %w", name, err)
		}
	}
	return cert, key, nil
}

func create(path string, text []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// ReadAuthority reads the authority that Write wrote.
func ReadAuthority(dir, name string) (*Authority, error) {
	var p Pair
	var err error
	if p.Cert, err = os.ReadFile(filepath.Join(dir, name+".crt")); err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	if p.Key, err = os.ReadFile(filepath.Join(dir, name+".key")); err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	return ParseAuthority(p)
}
