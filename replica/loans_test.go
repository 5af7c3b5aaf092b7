// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/replica/protocol"
)

// TestLoansOutliveTheProcess: a home that starts again begins nothing before the leases have ended
// that it lent to gateways without a copy. A while after the last one it does not wait.
func TestLoansOutliveTheProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", 1)
	w.up("a")
	epoch := w.leads("a", 0)
	a := w.site("a")
	w.writes(a, 1, 3, 10)
	w.until("a lease is lent", func() bool {
		a.replica.Reading(protocol.Reading{Gateway: "x", Epoch: epoch, Stamp: time.Second, Reads: 100})
		_, ok := a.replica.Loan("x")
		return ok
	})
	if l, _ := a.replica.Loan("x"); l.Echo != time.Second || l.Grant != testPromise/2 || l.End != a.log.End() || l.Epoch != epoch {
		t.Errorf("%+v", l)
	}
	pending := a.write(4, 10)
	w.pass(5 * testBeat)
	select {
	case err := <-pending:
		t.Fatalf("a change is acknowledged of which x does not know: %v", err)
	default:
	}
	again := func() time.Duration {
		a.kill(true)
		began := w.clock()
		w.up("a")
		epoch = w.leads("a", epoch)
		return w.clock() - began
	}
	if took := again(); took < testPromise/2 {
		t.Errorf("it serves after %v, and x may read for %v", took, testPromise/2)
	}
	w.writes(a, 5, 6, 10)
	w.pass(keepNote + testPromise)
	w.until("long after the last loan nothing is noted", func() bool { return !a.log.Loans() })
	again()
	w.writes(a, 7, 8, 10)
}

// TestLoanThatIsNotNoted: without room for the note nothing is lent, and no change waits for it.
func TestLoanThatIsNotNoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", 1)
	w.up("a")
	epoch := w.leads("a", 0)
	a := w.site("a")
	w.writes(a, 1, 3, 10)
	a.disk.Fail(crashfs.OpCreate, 1, cachepool.ErrFull)
	for range 3 { // all at once: what is taken back is not what is lent after it
		a.replica.Reading(protocol.Reading{Gateway: "x", Epoch: epoch, Stamp: time.Second, Reads: 100})
	}
	w.pass(testBeat)
	if l, ok := a.replica.Loan("x"); ok {
		t.Errorf("it lends %+v", l)
	}
	a.replica.mu.Lock()
	if a.replica.core.Unknown(w.clock(), Position{Seq: 1 << 40}, false) {
		t.Error("changes wait for what is not lent")
	}
	a.replica.mu.Unlock()
	w.writes(a, 4, 5, 10)
}
