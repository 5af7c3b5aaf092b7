// SPDX-License-Identifier: Apache-2.0

package gatewaycmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/weir-storage/weir/cmd/weir/internal/machine"
	"github.com/weir-storage/weir/federation"
)

// What the pool's folder has about the registry: a file with the guard's state, and the folder of
// the archive.
const (
	guardName   = "registry-guard.json"
	charterName = "charter.jws"
	archiveName = "registry-archive"
)

// guardFile is the path of the state of the registry's guard, which notices a registry that went
// back (protocol-7). It is in the pool's folder.
type guardFile string

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
		return s, fmt.Errorf("%w: file %s: restore it, or, when you are sure that the registry was not restored from a backup, remove it "+
			"and the folder %s beside it", err, f, archiveName)
	}
	return s, nil
}

func (f guardFile) save(s federation.GuardState) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return machine.WriteFile(string(f), append(text, '\n'), false)
}
