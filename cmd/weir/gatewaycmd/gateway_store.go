// SPDX-License-Identifier: Apache-2.0

package gatewaycmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/weir-storage/weir/cmd/weir/internal/config"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/store"
	storedir "github.com/weir-storage/weir/store/dir"
	"github.com/weir-storage/weir/store/s3"
)

// storeCheckTime bounds how long a start waits for the store.
const storeCheckTime = 10 * time.Second

// OpenStore opens the site's store and checks it. It returns nil when the site has none. A store
// that refuses the keys or cannot be trusted is an error. A store that does not answer is only
// logged: a gateway runs on its pool until the store is back.
func OpenStore(ctx context.Context, c config.Store, logger *slog.Logger) (store.Store, federation.SiteStore, error) {
	if c == (config.Store{}) {
		logger.Warn("site has no store: sealed segments stay on the pools only; " +
			"give it one with store.endpoint, bucket, accessKey and secretKey")
		return nil, federation.SiteStore{}, nil
	}
	if c.Dir != "" {
		s, err := storedir.Open(c.Dir)
		if err != nil {
			return nil, federation.SiteStore{}, fmt.Errorf("store.dir: %q: %w: give a folder that this user can write", c.Dir, err)
		}
		return s, federation.SiteStore{Endpoint: "file://" + c.Dir}, nil
	}
	if c.SecretKeyFile != "" {
		text, err := os.ReadFile(c.SecretKeyFile)
		if err != nil {
			return nil, federation.SiteStore{}, fmt.Errorf(
				"store.secretKeyFile: %w: give the path of the file with the account's secret key", err)
		}
		c.SecretKey = strings.TrimSpace(string(text))
	}
	s, err := s3.New(s3.Config{Endpoint: c.Endpoint, Bucket: c.Bucket, Region: c.Region, AccessKey: c.AccessKey, SecretKey: c.SecretKey})
	if err != nil {
		return nil, federation.SiteStore{}, fmt.Errorf("store: %w", err)
	}
	check, cancel := context.WithTimeout(ctx, storeCheckTime)
	defer cancel()
	refused, err := judgeCheck(c, s.Check(check))
	if refused != nil {
		return nil, federation.SiteStore{}, refused
	}
	if err != nil {
		logger.Warn("store is not ready; the gateway starts, and uploads wait", "store", s, "error", err)
	}
	return s, federation.SiteStore{Endpoint: c.Endpoint, Bucket: c.Bucket}, nil
}

// judgeCheck sorts the error of a store's check. With refused the gateway does not start.
func judgeCheck(c config.Store, err error) (refused, warn error) {
	secret := "store.secretKey"
	if c.SecretKeyFile != "" {
		secret = "store.secretKeyFile (" + c.SecretKeyFile + ")"
	}
	switch {
	case errors.Is(err, store.ErrAccess):
		return fmt.Errorf("store.accessKey %q and %s: the store at store.endpoint %s, store.bucket %s refuses them: %w",
			c.AccessKey, secret, c.Endpoint, c.Bucket, err), nil
	case errors.Is(err, store.ErrInvalid):
		return fmt.Errorf("store.endpoint %s, store.bucket %s: %w", c.Endpoint, c.Bucket, err), nil
	}
	return nil, err
}
