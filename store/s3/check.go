// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/weir-storage/weir/store"
)

// probe is the object that Check writes and deletes.
const probe = "weir-check/conditional-put"

// probeTries: two gateways may check one bucket at the same moment and delete each other's probe.
const probeTries = 3

// Check makes sure of endpoint, bucket and keys: it creates the bucket if that is missing, and
// writes, reads and deletes a probe. It fails with store.ErrInvalid when the server ignores
// If-None-Match, and else as Put does.
func (s *Store) Check(ctx context.Context) error {
	// A listing, since the answer to a HEAD has no room for what is wrong with the keys.
	stop := errors.New("stop")
	err := s.List(ctx, "weir-check/", func(store.Info) error { return stop })
	if errorCode(err) == "NoSuchBucket" {
		err = s.client.MakeBucket(ctx, s.cfg.Bucket, minio.MakeBucketOptions{Region: s.cfg.Region})
		if c := errorCode(err); c == "BucketAlreadyOwnedByYou" {
			err = nil // somebody was faster
		} else if c == "BucketAlreadyExists" {
			err = fmt.Errorf("%w: the bucket belongs to another account: correct bucket, or accessKey and secretKey", store.ErrAccess)
			return &store.Error{Op: "check", Store: s.String(), Err: err}
		}
		err = s.fail(ctx, "create bucket", "", err)
	}
	if err != nil && !errors.Is(err, stop) {
		return err
	}
	for range probeTries {
		kept, err := s.probe(ctx)
		if err != nil || kept {
			return err
		}
	}
	return &store.Error{Op: "check", Store: s.String(), Err: store.ErrInvalid,
		Detail: "the server ignores If-None-Match, so objects could replace each other: use a server that has conditional PUT"}
}

// probe reports whether the second of two conditional PUTs was refused.
func (s *Store) probe(ctx context.Context) (bool, error) {
	const text = "weir"
	if err := s.put(ctx, probe, int64(len(text)), strings.NewReader(text), false); err != nil && !exists(err) {
		return false, s.fail(ctx, "put", probe, err)
	}
	err := s.put(ctx, probe, int64(len(text)), strings.NewReader(text), false)
	if err != nil && !exists(err) {
		return false, s.fail(ctx, "put", probe, err)
	}
	kept := exists(err)
	got := make([]byte, len(text))
	if err := s.GetRange(ctx, probe, 0, got); err != nil && !errors.Is(err, store.ErrNotExist) {
		return false, err
	} else if err == nil && string(got) != text {
		return false, &store.Error{Op: "check", Store: s.String(), Name: probe, Err: store.ErrInvalid,
			Detail: fmt.Sprintf("it reads %q instead of %q: this is no store to trust", got, text)}
	}
	return kept, s.Delete(ctx, probe)
}
