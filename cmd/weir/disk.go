// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
)

// boottime is the clock of promises: monotonic, and it counts suspend (rule 4).
func boottime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(fmt.Sprintf("clock CLOCK_BOOTTIME: %v", err)) // no Linux since 2.6.39 is without it
	}
	return time.Duration(t.Nano())
}

// writeFile writes a file for its owner's eyes, durably and whole or not at all. With fresh, a file that is there
// stays as it is: fs.ErrExist.
func writeFile(path string, text []byte, fresh bool) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".new") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already after a rename
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if fresh {
		err = os.Link(f.Name(), path)
	} else {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// readSiteKey returns fs.ErrNotExist when there is none yet.
func readSiteKey(path string) (keyring.SiteKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return keyring.SiteKey{}, fmt.Errorf("siteKey: %w", err)
	}
	k, err := keyring.ParseSiteKey(text)
	if err != nil {
		return k, fmt.Errorf("siteKey: file %s: %w", path, err)
	}
	return k, nil
}

func makeSiteKey(path string) (keyring.SiteKey, error) {
	k, err := keyring.NewSiteKey()
	if err != nil {
		return k, err
	}
	text, err := k.Bytes()
	if err == nil {
		err = writeFile(path, text, true)
	}
	if err != nil {
		return k, fmt.Errorf("siteKey: write the new key of this site: %w: give a path in a folder that this user can write", err)
	}
	return k, nil
}

// guardFile is a registry guard's state in the pool's folder.
type guardFile string

const guardName = "registry-guard.json"

func (f guardFile) load() (federation.GuardState, error) {
	var s federation.GuardState
	text, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("%w: file %s: restore it, or, when you are sure that the registry was not restored from a backup, remove it", err, f)
	}
	return s, nil
}

func (f guardFile) save(s federation.GuardState) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return writeFile(string(f), append(text, '\n'), false)
}
