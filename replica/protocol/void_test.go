// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"testing"
)

// TestVoidLogIsGivenUp: a log that a reconciled control record calls void takes no part any more,
// whatever it was; another log on the same pool does (protocol-7).
func TestVoidLogIsGivenUp(t *testing.T) {
	for _, home := range []bool{true, false} {
		h := byHand(t, "a", 1, begun(2, 1, 2))
		if home {
			h.do(ControlRead{control(2, "b", "b"), 1})
		}
		kept := control(2, "b", "b")
		kept.Void = []Member{member("a")}
		out := h.do(ControlRead{kept, 2})
		if !slices.ContainsFunc(out, func(e Effect) bool { return e == Effect(Disown{By: "b"}) }) || h.role != Failed {
			t.Errorf("it is %v after %v", h.role, out)
		}
		if out := h.from("b", Message{Kind: Hello, Epoch: 2, Epochs: begun(2, 1, 2).Epochs, End: position(2)}); len(out) != 0 {
			t.Errorf("a void log takes part: %v", out)
		}
	}
	h := byHand(t, "a", 1, LogState{})
	kept := control(2, "b", "b")
	kept.Void = []Member{{Gateway: "a", Site: "a", Incarnation: "1", Log: "old"}}
	if h.do(ControlRead{kept, 2}); h.role == Failed {
		t.Error("the log that began anew is given up too")
	}
}
