// SPDX-License-Identifier: Apache-2.0

package setupcmd

import (
	"context"
	"fmt"

	"github.com/weir-storage/weir/cmd/weir/pkicmd"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/pki"
)

// keepSiteKey makes the site's key if there is none. It never replaces one.
func (s *setup) keepSiteKey(ctx context.Context) error {
	old, err := s.secret(ctx, s.siteKey)
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
		return s.createSecret(ctx, s.siteKey, map[string][]byte{siteKeyFile: text})
	}
	if _, err := keyring.ParseSiteKey(old.Data[siteKeyFile]); err != nil {
		return fmt.Errorf("secret %s/%s, key %s: %w: put the site's key back from its copy; it is not made anew, "+
			"because what is wrapped for the old one can not be read with a new one",
			s.namespace, s.siteKey, siteKeyFile, err)
	}
	return nil
}

// keepAuthority reads the federation's authority, or makes it if there is none.
func (s *setup) keepAuthority(ctx context.Context) (*pki.Authority, error) {
	old, err := s.secret(ctx, s.authority)
	if err != nil {
		return nil, err
	}
	if old == nil {
		a, err := pki.NewAuthority(s.federation, s.now(), pkicmd.AuthorityTime)
		if err != nil {
			return nil, err
		}
		p, err := a.Pair()
		if err != nil {
			return nil, err
		}
		return a, s.createSecret(ctx, s.authority, map[string][]byte{caCert: p.Cert, caKey: p.Key})
	}
	a, err := pki.ParseAuthority(pki.Pair{Cert: old.Data[caCert], Key: old.Data[caKey]})
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w: put the federation's ca.crt and ca.key there, "+
			"or give certificates that were issued elsewhere",
			s.namespace, s.authority, err)
	}
	if a.Federation() != s.federation {
		return nil, fmt.Errorf("secret %s/%s: it is the authority of federation %q, and --federation is %q: correct one of the two",
			s.namespace, s.authority, a.Federation(), s.federation)
	}
	return a, nil
}
