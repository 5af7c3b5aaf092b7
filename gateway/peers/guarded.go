// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Guarded returns options with which a call that panics fails alone: the process serves other
// volumes. It ends with Aborted, which gRPC itself never says, and is not to be repeated: it would
// panic again. count is called for each.
func Guarded(log *slog.Logger, count func()) []grpc.ServerOption {
	ended := func(method string, err *error) {
		if v := recover(); v != nil {
			count()
			log.Error("call panicked", "method", method, "panic", v, "stack", string(debug.Stack()))
			*err = status.Errorf(codes.Aborted, "%s: a mistake in the program ended it: see the gateway's log", method)
		}
	}
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(func(ctx context.Context, q any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
			defer ended(info.FullMethod, &err)
			return next(ctx, q)
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
			defer ended(info.FullMethod, &err)
			return next(srv, s)
		}),
	}
}
