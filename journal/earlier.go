// SPDX-License-Identifier: Apache-2.0

package journal

import "context"

type earlierKey struct{}

// Earlier returns a context in which a machine answers reads with an earlier state, where the
// journal allows that (Journal.Bounded), and if the machine has applied everything up to told. They
// wait for nothing. Otherwise they are to be asked again.
func Earlier(ctx context.Context, told Position) context.Context {
	return context.WithValue(ctx, earlierKey{}, told)
}

// ToldBy returns what Earlier put into a context; false: it did not.
func ToldBy(ctx context.Context) (told Position, ok bool) {
	told, ok = ctx.Value(earlierKey{}).(Position)
	return told, ok
}
