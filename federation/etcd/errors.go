// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
)

var errClosed = errors.New("the connection to the registry is closed")

// readError turns what a read met into the port's outcomes. The caller's own end of ctx is its own
// error.
func (c *kv) readError(ctx context.Context, err error) error {
	if known := c.definite(err); known != nil {
		return known
	}
	if c.ctx.Err() != nil {
		return errClosed
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.down(err)
}

// changeError does so for a change. What etcd refused was not applied; everything else may have
// been. So may a change that is answered with "no space": a member that finds that there is none
// left applies it first. But after such an answer it is not under way any more, so reading tells.
func (c *kv) changeError(ctx context.Context, err error) error {
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return c.noSpace(federation.ErrUnknown, err)
	}
	if known := c.definite(err); known != nil {
		return known
	}
	why := err
	if ctx.Err() != nil {
		why = ctx.Err()
	}
	return fmt.Errorf("%w: %w (registry %s): it may have been applied or may still be; read it back before going on",
		federation.ErrUnknown, why, c.endpoints())
}

// definite is not nil when etcd answered, and so did not apply anything.
func (c *kv) definite(err error) error {
	code := status.Code(err)
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		code = e.Code()
		if code == codes.ResourceExhausted {
			return fmt.Errorf("%w: %s refuses changes (%w): give its database more room, or compact and defragment it; running "+
				"volumes go on",
				federation.ErrUnavailable, c.endpoints(), err)
		}
	}
	switch code {
	case codes.PermissionDenied, codes.Unauthenticated:
		return fmt.Errorf("%w: %w (registry %s): docs/trust.md says who may do what", federation.ErrAccess, err,
			c.endpoints())
	case codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented:
		return fmt.Errorf("%w: the registry %s refused the request: %w", federation.ErrInvalid, c.endpoints(), err)
	}
	return nil
}

// leaderless reports whether a member answered that it has no leader, or another one than before.
func leaderless(err error) bool {
	return errors.Is(err, rpctypes.ErrNoLeader) || errors.Is(err, rpctypes.ErrLeaderChanged)
}

// away reports whether a member did not answer, or had no leader.
func away(err error) bool {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code() == codes.Unavailable
	}
	return status.Code(err) == codes.Unavailable
}

func (c *kv) noSpace(outcome, err error) error {
	return fmt.Errorf("%w: %s has no space left (%w): give its database more room, or compact and defragment it; running volumes go on",
		outcome, c.endpoints(), err)
}

func (c *kv) down(err error) error {
	if shake := c.shakes.err(); shake != nil {
		err = fmt.Errorf("%w; latest handshake: %w", err, shake)
	}
	return fmt.Errorf("%w: %s does not answer (%w): running volumes go on; nothing is created, moved or taken over until"+
		" a majority of its members answers; check them and the network to them", federation.ErrUnavailable, c.endpoints(), err)
}

func (c *kv) endpoints() string { return strings.Join(c.cfg.Endpoints, ", ") }
