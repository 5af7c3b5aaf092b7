// SPDX-License-Identifier: Apache-2.0

// Package keyfile writes a volume's data keys to a file, in the clear.
package keyfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/machine"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
)

// Export says where a volume's data keys go in the clear, and what unwraps them.
type Export struct {
	To      string // path
	SiteKey string // path; empty: that of the opener
	Site    string // empty: that of the opener
}

// Write unwraps a volume's data keys with a site's private key and writes them to a new file, which
// docs/weirread.py reads. They go nowhere else. Keys that are sealed under a secret which is not
// here are left out, which is told.
func (o Export) Write(ctx context.Context, sh *cli.Shell, opener *access.Opener, cl *access.Client, name string) error {
	o.Site, o.SiteKey = cmp.Or(o.Site, opener.Site), cmp.Or(o.SiteKey, opener.SiteKey)
	if o.Site == "" || o.SiteKey == "" {
		return cli.Usage("it is not known what unwraps the keys: give --site and --site-key, the file with that site's private key, " +
			"or --config with the file of a gateway, which has both")
	}
	text, err := os.ReadFile(o.SiteKey)
	if err != nil {
		return fmt.Errorf("--site-key: %w: run this where a gateway of site %s runs, or with a copy of its key", err, o.Site)
	}
	private, err := keyring.ParseSiteKey(text)
	if err != nil {
		return fmt.Errorf("--site-key: file %s: %w", o.SiteKey, err)
	}
	v, _, err := cl.Find(ctx, name)
	if err != nil {
		return err
	}
	ring, _, err := cl.Registry.GetKeyring(ctx, v.UUID)
	if errors.Is(err, federation.ErrNotFound) {
		return fmt.Errorf("volume %s: it has no keyring: restore it with the registry's backup", name)
	}
	if err != nil {
		return err
	}
	keys, err := private.UnwrapAll(ring, o.Site)
	if errors.Is(err, keyring.ErrErasable) && len(keys) > 0 {
		sh.Tell("warning: a data key cannot be opened: %v\n", err)
		err = nil
	}
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Data keys of volume %s, %s: whoever has this file can read the volume.\n", v.Name, v.UUID)
	for _, number := range slices.Sorted(maps.Keys(keys)) {
		key := keys[number]
		fmt.Fprintf(&b, "%d %x\n", number, key)
	}
	err = machine.WriteFile(o.To, []byte(b.String()), true)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("--export: %s is there already: give the name of a new file", o.To)
	}
	if err != nil {
		return fmt.Errorf("--export: %w", err)
	}
	if all := len(ring.Keys()); len(keys) < all {
		sh.Tell("warning: site %s has only %d of %d data keys: what was written with the others cannot be read with this file\n",
			o.Site, len(keys), all)
	}
	sh.Tell("warning: %s has the data keys of volume %s in the clear. Whoever gets it and sealed data of the volume can read these,\n"+
		"also when no site has the keys any more. Keep it offline, and export again when the volume has another data key.\n", o.To, name)
	return nil
}
