// SPDX-License-Identifier: Apache-2.0

// Package relay brings the messages of a stream of etcd from who asks to etcd and back.
package relay

import (
	"context"
	"errors"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Run runs what brings messages to etcd, and what brings them back, until one of them fails. It
// returns why, nil if the asker ended it. cancel ends both. safely calls a function, and makes an
// error of its panic.
func Run(ctx context.Context, cancel func(), safely func(context.Context, string, func() error) error, there, back func() error) error {
	first := make(chan error, 2)
	for _, bring := range []func() error{there, back} {
		go func() {
			first <- safely(ctx, "stream", func() error {
				for {
					if err := bring(); err != nil {
						return err
					}
				}
			})
		}()
	}
	err := <-first
	cancel()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// All brings messages from etcd to who asked until there are no more.
func All[T any](recv func() (T, error), send func(T) error) error {
	for {
		part, err := recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return status.Error(status.Code(err), err.Error())
		}
		if err := send(part); err != nil {
			return status.Error(codes.Canceled, err.Error())
		}
	}
}

// Held reports whether the asker's own conditions held when a transaction failed, as the answers
// about their keys say.
func Held(conditions []*pb.Compare, answers []*pb.ResponseOp) bool {
	for i, c := range conditions {
		var is int64
		if found := answers[i].GetResponseRange().GetKvs(); len(found) > 0 {
			is = found[0].GetModRevision()
		}
		if is != c.GetModRevision() {
			return false
		}
	}
	return true
}
