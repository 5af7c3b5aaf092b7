// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"testing"
	"time"
)

// TestGate: a gate opens once, and its token is worth nothing then (hold-1).
func TestGate(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	var g Gate
	if g.Closed(at(0)) || g.By(at(0), "") || g.By(at(0), "a") {
		t.Error("a new gate is closed")
	}
	if !g.Close(at(0), at(5), "a") || !g.By(at(4), "a") || g.By(at(4), "b") || g.Close(at(4), at(9), "b") || g.Until() != at(5) {
		t.Error("it is not closed by a alone")
	}
	if g.Closed(at(5)) || g.By(at(4), "a") {
		t.Error("its time is over, and it is closed again by a clock that goes back")
	}
	if !g.Close(at(6), at(9), "b") || g.By(at(6), "a") {
		t.Error("a is worth something after its time")
	}
	g.Open()
	if g.Closed(at(7)) || g.By(at(7), "b") {
		t.Error("it was opened")
	}
	if g.Close(at(8), at(8), "c") {
		t.Error("it is closed for no time")
	}
}
