// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/minio/minio-go/v7"

	"github.com/weir-storage/weir/store"
)

// errorCode is the server's word for an error; empty when it is not the server's.
func errorCode(err error) string {
	var r minio.ErrorResponse
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}

// errorStatus is the HTTP status of the server's answer; 0 when it is not the server's.
func errorStatus(err error) int {
	var r minio.ErrorResponse
	if errors.As(err, &r) {
		return r.StatusCode
	}
	return 0
}

// fail turns an error of a request into the port's outcomes; nil stays nil.
func (s *Store) fail(ctx context.Context, op, name string, err error) error {
	if err == nil {
		return nil
	}
	e := &store.Error{Op: op, Store: s.String(), Name: name}
	is := func(outcome error, detail string) error {
		e.Err, e.Detail = fmt.Errorf("%w (%w)", outcome, err), detail
		return e
	}
	for _, known := range []error{store.ErrInvalid, store.ErrConflict, store.ErrShort, store.ErrNotExist, store.ErrUnavailable} {
		if errors.Is(err, known) {
			e.Err = err
			return e
		}
	}
	if ctx.Err() != nil {
		e.Err = ctx.Err()
		return e
	}
	switch errorCode(err) {
	case "NoSuchKey":
		e.Err = store.ErrNotExist
		return e
	case "InvalidRange":
		return is(store.ErrShort, "")
	case "InvalidAccessKeyId", "XAdminUserNotFound": // the latter is versitygw's
		return is(store.ErrAccess, fmt.Sprintf("the server does not know accessKey %q: correct accessKey and secretKey of this store",
			s.cfg.AccessKey))
	case "SignatureDoesNotMatch":
		return is(store.ErrAccess, fmt.Sprintf("secretKey does not belong to accessKey %q: correct secretKey of this store",
			s.cfg.AccessKey))
	case "AccessDenied", "AllAccessDisabled", "AccountProblem":
		return is(store.ErrAccess, fmt.Sprintf("accessKey %q may not do this: correct accessKey and secretKey of this store, or let "+
			"that account list, read, write and delete in the bucket", s.cfg.AccessKey))
	case "RequestTimeTooSkewed":
		return is(store.ErrAccess, "this machine's clock and the server's differ too much for accessKey and secretKey to count: set "+
			"both clocks")
	case "NoSuchBucket":
		return is(store.ErrUnavailable, "the bucket does not exist: create it, or correct bucket of this store")
	case "QuotaExceeded", "XMinioStorageFull":
		return is(store.ErrUnavailable, "the store is full: give it room")
	case "InvalidBucketName":
		return is(store.ErrInvalid, "bucket names are 3 to 63 lower-case letters, digits, '-' and '.': correct bucket of this store")
	}
	if st := errorStatus(err); st == http.StatusUnauthorized || st == http.StatusForbidden {
		return is(store.ErrAccess, fmt.Sprintf("the server refuses accessKey %q: correct accessKey and secretKey of this store",
			s.cfg.AccessKey))
	}
	return is(store.ErrUnavailable, "check endpoint of this store, that its server runs, and the network to it")
}
