// SPDX-License-Identifier: Apache-2.0

package gatewaycmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
)

// registryPause is the time between attempts to reach the registry at a site's first start.
const registryPause = 2 * time.Second

// siteKey reads the site's key. It makes one only when the registry says that the site has none:
// what is wrapped for a first key cannot be read with a second.
//
// A KMS plugin that is away is waited for: without it this site opens no volume, and others go on.
func siteKey(ctx context.Context, from keySource, site string, registry federation.Sites,
	pause func(context.Context, time.Duration) bool) (keyring.SiteKey, error) {
	path, logger := from.path, from.logger
	k, missing := from.read(ctx)
	for missing != nil && !errors.Is(missing, fs.ErrNotExist) && from.plugin != nil {
		logger.Error("the site's key cannot be opened, and no volume here; trying again", "error", missing)
		if !pause(ctx, registryPause) {
			return k, ctx.Err()
		}
		k, missing = from.read(ctx)
	}
	if missing != nil && !errors.Is(missing, fs.ErrNotExist) {
		return k, missing
	}
	for {
		known, err := knownKey(ctx, registry, site)
		switch {
		case err == nil && missing == nil:
			if err := checkSiteKey(path, site, k.Public(), known); err != nil {
				return k, err
			}
			return k, from.settle(ctx, k)
		case err == nil && known != nil:
			return k, fmt.Errorf("siteKey: %q: there is no such file, and site %s has a key already: "+
				"copy its file here, from another gateway of the site or a backup; "+
				"what is wrapped for the old key can not be read with a new one", path, site)
		case err == nil:
			logger.Info("site gets its key", "site", site, "siteKey", path)
			return from.make(ctx)
		case !errors.Is(err, federation.ErrUnavailable):
			return k, err
		case missing == nil:
			logger.Warn("registry does not answer; the gateway starts with what it has", "error", err)
			return k, nil
		}
		logger.Warn("registry does not answer; a site's first start waits for it", "site", site, "error", err)
		if !pause(ctx, registryPause) {
			return k, ctx.Err()
		}
	}
}

// knownKey is the public key that the site has registered, or nil.
func knownKey(ctx context.Context, registry federation.Sites, site string) ([]byte, error) {
	all, err := registry.Sites(ctx)
	for _, s := range all {
		if s.Site.Name == site && len(s.Site.WrapKey) > 0 {
			return s.Site.WrapKey, err
		}
	}
	return nil, err
}

func checkSiteKey(path, site string, mine, known []byte) error {
	if known == nil || string(known) == string(mine) {
		return nil
	}
	return fmt.Errorf("siteKey: %q: it is not the key that site %s registered: "+
		"give the site's own file, which all its gateways share, or choose another name for a new site", path, site)
}

// ReadSiteKey reads the file of a site's key. It returns fs.ErrNotExist when there is no file.
func ReadSiteKey(path string) (keyring.SiteKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return keyring.SiteKey{}, fmt.Errorf("siteKey: %w", err)
	}
	if isSealed(text) {
		return keyring.SiteKey{}, fmt.Errorf("siteKey: file %s: %w", path, errSealed)
	}
	k, err := keyring.ParseSiteKey(text)
	if err != nil {
		return k, fmt.Errorf("siteKey: file %s: %w", path, err)
	}
	return k, nil
}
