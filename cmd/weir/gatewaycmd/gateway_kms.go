// SPDX-License-Identifier: Apache-2.0

package gatewaycmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/weir-storage/weir/cmd/weir/internal/kms"
	"github.com/weir-storage/weir/cmd/weir/internal/machine"
	"github.com/weir-storage/weir/federation/keyring"
)

// sealedKey is the file of a site's key that a KMS plugin sealed.
type sealedKey struct {
	KMS    string `json:"kms"`    // version of the protocol
	Public []byte `json:"public"` // of the key
	kms.Sealed
}

// errSealed reports that the file can be opened by a KMS plugin only.
var errSealed = errors.New("a KMS plugin sealed it: write where that is into keys.kms.endpoint")

// isSealed reports whether text is a sealedKey. Other files have 32 bytes.
func isSealed(text []byte) bool { return len(text) != 32 && bytes.HasPrefix(text, []byte("{")) }

// keySource is where the site's key is. Without a plugin it is in the file as it is.
type keySource struct {
	path   string
	from   string      // with a plugin: a file that is read while path is not there; empty: none
	plugin *kms.Plugin // nil: none
	logger *slog.Logger
}

// read reads the site's key. fs.ErrNotExist: there is no file. A file that is not sealed yet is, if
// there is a plugin; what is read from another file is not written: see settle.
func (s keySource) read(ctx context.Context) (keyring.SiteKey, error) {
	path := s.path
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && s.plugin != nil && s.from != "" {
		path = s.from
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return keyring.SiteKey{}, fmt.Errorf("siteKey: %w", err)
	}
	if !isSealed(text) || s.plugin == nil {
		k, err := ReadSiteKey(path)
		if err == nil && s.plugin != nil && path == s.path {
			s.logger.Info("the site's key is sealed by the KMS plugin from now on", "siteKey", s.path)
			err = s.write(ctx, k, false)
		}
		return k, err
	}
	var is sealedKey
	if err = json.Unmarshal(text, &is); err == nil && is.KMS != kms.Version {
		err = fmt.Errorf("it is sealed by version %q, and %s is known here", is.KMS, kms.Version)
	}
	if err == nil {
		text, err = s.plugin.Open(ctx, path, is.Sealed)
	}
	var k keyring.SiteKey
	if err == nil {
		k, err = keyring.ParseSiteKey(text)
	}
	if err == nil && !bytes.Equal(k.Public(), is.Public) {
		err = errors.New("the plugin opened another key than was sealed")
	}
	if err != nil {
		return k, fmt.Errorf("siteKey: file %s: %w", path, err)
	}
	return k, nil
}

// settle writes a key, sealed, that was read from another file. It is the site's, as the registry
// says: a wrong one would be in the place of the right one for good.
func (s keySource) settle(ctx context.Context, k keyring.SiteKey) error {
	if s.plugin == nil {
		return nil
	}
	if _, err := os.Stat(s.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.write(ctx, k, true); err != nil {
		return err
	}
	s.logger.Info("the site's key is sealed by the KMS plugin from now on: destroy the file that it was read from, and its copies",
		"siteKey", s.path, "from", s.from)
	return nil
}

// make makes the key of a new site.
func (s keySource) make(ctx context.Context) (keyring.SiteKey, error) {
	k, err := keyring.NewSiteKey()
	if err != nil {
		return k, err
	}
	return k, s.write(ctx, k, true)
}

// write writes the key, sealed if there is a plugin. fresh: there is no file yet.
func (s keySource) write(ctx context.Context, k keyring.SiteKey, fresh bool) error {
	text, err := k.Bytes()
	if err == nil && s.plugin != nil {
		is := sealedKey{KMS: kms.Version, Public: k.Public()}
		if is.Sealed, err = s.plugin.Seal(ctx, s.path, text); err == nil {
			var back []byte // who cannot open it again would have lost the site's volumes
			if back, err = s.plugin.Open(ctx, s.path, is.Sealed); err == nil && !bytes.Equal(back, text) {
				err = errors.New("the KMS plugin does not open what it sealed")
			}
			text, _ = json.Marshal(is) // these fields always can be
		}
	}
	if err == nil {
		err = machine.WriteFile(s.path, text, fresh)
	}
	if err != nil {
		return fmt.Errorf("siteKey: write the key of this site: %w: give a path in a folder that this user can write", err)
	}
	return nil
}

// resealEvery is how often the plugin is asked which key it seals with.
const resealEvery = time.Minute

// keep has the key sealed again when the plugin seals with another key, until ctx ends.
func (s keySource) keep(ctx context.Context, k keyring.SiteKey, pause func(context.Context, time.Duration) bool) {
	for pause(ctx, resealEvery) {
		if done, err := s.reseal(ctx, k); err != nil {
			s.logger.Warn("the site's key is not sealed again yet; trying again", "siteKey", s.path, "error", err)
		} else if done {
			s.logger.Info("the site's key is sealed with another key of the KMS plugin", "siteKey", s.path)
		}
	}
}

func (s keySource) reseal(ctx context.Context, k keyring.SiteKey) (done bool, err error) {
	now, err := s.plugin.KeyID(ctx)
	if err != nil {
		return false, err
	}
	var is sealedKey
	text, err := os.ReadFile(s.path)
	if err == nil {
		err = json.Unmarshal(text, &is)
	}
	if errors.Is(err, fs.ErrNotExist) && s.from != "" {
		// Whether the key is the site's may not be known yet: see settle.
		return false, errors.New("there is no such file; it is written when this gateway is started and the registry answers")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) || is.KeyID == now {
		return false, err
	}
	if err == nil && !bytes.Equal(is.Public, k.Public()) {
		return false, errors.New("the file has another key than this gateway started with: start it again if that is the right one")
	}
	return true, s.write(ctx, k, false)
}
