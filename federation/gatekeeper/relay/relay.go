// SPDX-License-Identifier: Apache-2.0

// Package relay brings the messages of a stream of etcd from who asks to etcd and back.
package relay

import (
	"context"
	"errors"
	"io"
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
