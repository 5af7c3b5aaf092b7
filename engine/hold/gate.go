// SPDX-License-Identifier: Apache-2.0

// Package hold has the gate behind which a home holds changes of a volume for a snapshot that
// belongs to a group (protocol-29, ADR 71).
//
// # Rules
//
//   - hold-1: A gate that was closed opens once: for its snapshot, when its time is over, or when
//     the reign ends. From then on its token is worth nothing. So whoever finds the gate closed by
//     a token knows that no change went through since that token closed it.
package hold

import "time"

// Gate lets changes through unless it is closed. The zero value is open. It is not safe for
// concurrent use: its owner asks it where it orders changes.
type Gate struct {
	token string
	until time.Time
}

// Close closes the gate until a time, unless it is closed already. It reports whether it did. The
// token must not be empty, and must be one that was never used before.
func (g *Gate) Close(now, until time.Time, token string) bool {
	if g.Closed(now) {
		return false
	}
	g.token, g.until = token, until
	return g.Closed(now)
}

// Closed reports whether changes have to wait. Once it is false it stays so until the next Close.
func (g *Gate) Closed(now time.Time) bool {
	if !now.Before(g.until) {
		g.token, g.until = "", time.Time{}
	}
	return g.token != ""
}

// By reports whether the gate is closed, and has been ever since a token closed it.
func (g *Gate) By(now time.Time, token string) bool { return g.Closed(now) && g.token == token }

// Until is when a closed gate opens by itself.
func (g *Gate) Until() time.Time { return g.until }

// Open opens the gate.
func (g *Gate) Open() { *g = Gate{} }
