// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/copies"
)

// TestOpeningKeepsTheFigures: a home that opens its copy says why it does not serve, and keeps what
// it reported before, with its time.
func TestOpeningKeepsTheFigures(t *testing.T) {
	then := time.Unix(1000, 0)
	own := federation.Observed{Volume: "v", Gateway: "ga", Epoch: 7, Home: "ga", Used: 5, At: then,
		Replicas: []federation.ObservedReplica{{Gateway: "ga"}}}
	all := []federation.Observed{{Volume: "v", Gateway: "gb", Epoch: 6, Used: 4}, own}
	v := copies.Opening{UUID: "v", Why: errors.New("its log is replayed: 37%"), Replay: federation.Progress{Copied: 37, Total: 100}}
	got := opening(before(all, "v", "ga", then.Add(time.Hour)), v)
	if got.Opening != v.Why.Error() || got.Message != got.Opening || got.Replay != v.Replay {
		t.Errorf("it does not say why: %+v", got)
	}
	if got.Used != own.Used || !got.At.Equal(then) || got.Epoch != own.Epoch || len(got.Replicas) != 1 {
		t.Errorf("figures of before are lost: %+v", got)
	}
	if got := opening(before(all[:1], "v", "ga", then), v); got.Volume != "v" || got.Gateway != "ga" || !got.At.Equal(then) {
		t.Errorf("the first report is %+v", got)
	}
}
