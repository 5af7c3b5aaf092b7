// SPDX-License-Identifier: Apache-2.0

package setupcmd

import (
	"context"
	"fmt"

	"github.com/weir-storage/weir/federation/keyring"
)

// keepSiteKey makes the site's key if there is none. It never replaces one.
func (s *setup) keepSiteKey(ctx context.Context) error {
	old, err := s.secrets().Get(ctx, s.siteKey)
	if err != nil {
		return err
	}
	if old == nil {
		k, err := keyring.NewSiteKey()
		if err != nil {
			return err
		}
		text, err := k.Bytes()
		if err != nil {
			return err
		}
		return s.secrets().Make(ctx, s.siteKey, map[string][]byte{siteKeyFile: text})
	}
	if _, err := keyring.ParseSiteKey(old.Data[siteKeyFile]); err != nil {
		return fmt.Errorf("secret %s/%s, key %s: %w: put the site's key back from its copy; it is not made anew, "+
			"because what is wrapped for the old one can not be read with a new one",
			s.namespace, s.siteKey, siteKeyFile, err)
	}
	return nil
}
