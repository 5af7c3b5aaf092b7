// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"testing"

	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/volume"
)

// TestLockIsRefusedByTheHomeAlone: that others have a lock is told by who is home when it is told. A grant is not taken back: the gateway
// that it went to registers it with the next home.
func TestLockIsRefusedByTheHomeAlone(t *testing.T) {
	for _, outcome := range []error{volume.ErrLocked, nil} {
		c := newCluster(t, "a", "b")
		id := c.create("v", manifest("v", 2))
		r := c.router("a", id)
		if home, _ := r.g.mirror.home(id); home != "ga" {
			t.Fatalf("home is %s", home)
		}
		h := file(t, r, &client{name: "a"}, "f")
		l := r.copy()
		k := volume.Lock{Owner: volume.LockOwner{Gateway: "ga", Owner: "o"}, End: 9}
		s := lockSession{l.locks, "ga", forward.Registration{}, true}
		err := s.run(within(t, hang), volume.Request{}, h, k, true, func() error {
			l.replica.Move("gb")
			c.until("a is home no more", func() error {
				if _, leads := l.replica.Leading(); leads {
					return errors.New("it is")
				}
				return nil
			})
			return outcome
		})
		if told := errors.Is(err, volume.ErrLocked); told || (err == nil) != (outcome == nil) {
			t.Errorf("a former home that came to %v says %v", outcome, err)
		}
	}
}
