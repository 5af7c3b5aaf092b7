// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"math/rand/v2"
	"time"
)

// outliners are gateways without a copy that ask how far the log reaches (outline-2). They draw
// their own random numbers.
type outliners struct {
	rnd  *rand.Rand
	told int // questions that were answered
}

// ask asks one node, which answers if it is home and serves when the question arrives. All that was
// committed when it was asked must lie before the end that it tells.
func (s *sim) ask() {
	if s.outliners.rnd == nil {
		return
	}
	n := s.nodes[s.outliners.rnd.IntN(len(s.nodes))]
	had := len(s.truth.committed)
	n.later(time.Duration(s.outliners.rnd.Int64N(int64(300*ms))), func() {
		if !n.core.leading() || !n.core.MayServe(n.clock()) || s.outside(n) {
			return
		}
		s.outliners.told++
		k := min(had, len(s.truth.committed)) // what a person gave up meanwhile is not missed
		if k > 0 && n.log.at(k) != s.truth.committed[k-1] {
			s.fail("%s tells that the log reaches to %v, which lacks %v, committed when it was asked", n.name, n.log.end(),
				s.truth.committed[k-1])
		}
	})
}
