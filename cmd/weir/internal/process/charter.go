// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/weir-storage/weir/cmd/weir/internal/machine"
	"github.com/weir-storage/weir/pki"
)

// KeepCharter gives credentials the federation's charter that a file has, and has the file keep
// those that they take: a registry that hides the charter, or has an old one, lets nobody in again.
func KeepCharter(creds *pki.Credentials, path string) error {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = creds.KeepCharter(string(text), func(signed string) error { return machine.WriteFile(path, []byte(signed), false) })
	if err != nil {
		return fmt.Errorf("file %s: %w", path, err)
	}
	return nil
}
