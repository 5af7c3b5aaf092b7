// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
)

// doubtError reports that a log on the pool has lost something that it had (copies-1).
type doubtError struct {
	why error
	// member is true if the control record counts on the log. Then no empty log may replace it. An
	// empty log would count as a member that has everything, and might even become home, to which
	// others would cut their logs. The copy waits until the home goes on without this member, or a
	// person decides.
	member bool
}

func (e *doubtError) Error() string {
	s := fmt.Sprintf("the log on this pool is in doubt: %v", e.why)
	if e.member {
		s += "; it is left as it is, because it is a member of the volume: " +
			"a home at another gateway goes on without it after a while and it then begins anew; " +
			"if this gateway is the home, bring the log back, " +
			"or stop this gateway and give up what it alone has with `weir failover --accept-loss` at another"
	}
	return s
}

// doubtful returns a *doubtError if the log must not be continued at its end, or why that is not
// known.
func (m *Manager) doubtful(ctx context.Context, l *log.Log, id string) error {
	found := l.Recovered()
	if found.Doubt == nil && l.End() != (log.Position{}) {
		return nil
	}
	ctl, _, err := m.cfg.Registry.GetControl(ctx, id)
	if errors.Is(err, federation.ErrNotFound) {
		ctl, err = federation.Control{}, nil
	}
	switch {
	case err != nil:
		return fmt.Errorf("read the control record of volume %s: %w", id, err)
	case found.Doubt != nil:
		return &doubtError{found.Doubt, ctl.CountsOn(m.cfg.Self)}
	case ctl.CountsOn(m.cfg.Self) && hadLog(ctl):
		return &doubtError{errors.New("it is empty"), true}
	}
	return nil
}

// hadLog reports whether a member of the volume must have something in its log. A first home that
// died between its swap and the beginning of its epoch has nothing.
func hadLog(ctl federation.Control) bool {
	if len(ctl.Members) > 1 {
		return true
	}
	for _, e := range ctl.History {
		if e.Start != (federation.Position{}) {
			return true
		}
	}
	return false
}
