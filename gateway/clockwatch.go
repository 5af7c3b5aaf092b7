// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"time"
)

// How the two clocks are compared. A clock that is set by hand, or by NTP at start, jumps too: what
// follows costs some hundred milliseconds without reads.
const (
	clockLook = 250 * time.Millisecond
	clockJump = 500 * time.Millisecond // adjusting a clock's rate stays far below this
)

// watchClocks compares the wall clock with the clock that promises are measured by, until ctx ends.
// When they part, the machine may have been stopped from outside: its own clock then stands still,
// and the wall clock is set right after it (protocol-4).
func (g *Gateway) watchClocks(ctx context.Context) {
	apart := func() time.Duration { return time.Duration(g.cfg.Now().UnixNano()) - g.cfg.Clock() }
	was := apart()
	for g.wait(ctx, clockLook); ctx.Err() == nil; g.wait(ctx, clockLook) {
		now := apart()
		if d := now - was; d > clockJump || d < -clockJump {
			g.cfg.Logger.Warn("the wall clock jumped: perhaps this machine was stopped from outside; promises of before are given up",
				"by", d)
			g.node.Jumped()
			g.copies.Jumped()
		}
		was = now
	}
}
