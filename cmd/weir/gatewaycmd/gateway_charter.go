// SPDX-License-Identifier: Apache-2.0

package gatewaycmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/weir-storage/weir/cmd/weir/internal/machine"
	"github.com/weir-storage/weir/pki"
)

// charterFile is where a gateway keeps the federation's charter over restarts, in its pool's
// folder: a registry that hides it, or has an old one, lets nobody in again.
type charterFile string

// follow gives credentials the charter of before, and keeps those that they take.
func (f charterFile) follow(creds *pki.Credentials) error {
	text, err := os.ReadFile(string(f))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = creds.KeepCharter(string(text), func(signed string) error { return machine.WriteFile(string(f), []byte(signed), false) })
	if err != nil {
		return fmt.Errorf("file %s: %w", f, err)
	}
	return nil
}
