// SPDX-License-Identifier: Apache-2.0

package belief

import (
	"fmt"

	"github.com/weir-storage/weir/engine/log"
)

// DoubtError reports that a log on the pool has lost something that it had (copies-1).
type DoubtError struct {
	Why   error
	End   log.Position // of what is left
	Epoch uint64       // of the last of what is left
	// Member is true if the control record counts on the log. Then no empty log may replace it. An
	// empty log would count as a member that has everything, and might even become home, to which
	// others would cut their logs. The copy waits until the home goes on without this member, or a
	// person decides.
	Member bool
	// Unnoted: the pool does not know it yet. It is tried again.
	Unnoted bool
}

func (e *DoubtError) Error() string {
	s := fmt.Sprintf("the log on this pool is in doubt: %v", e.Why)
	if e.Member {
		s += "; it is left as it is, because it is a member of the volume: " +
			"a home at another gateway goes on without it after a while and it then begins anew; " +
			"if this gateway is the home, bring the log back, " +
			"or, if no other copy is whole, give up what is lost with `weir failover --accept-loss`"
	}
	return s
}
