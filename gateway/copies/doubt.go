// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/belief"
)

// doubtful returns a *belief.DoubtError if the log must not be continued at its end, or why that is
// not known. With as, a person gave up what is lost.
func (m *Manager) doubtful(ctx context.Context, l *log.Log, id string, as log.Belief) error {
	unnoted, err := m.noteAgain(l, id)
	if err != nil {
		return err
	}
	found := l.Recovered()
	if unnoted == nil && found.Doubt == nil && l.End() != (log.Position{}) {
		return nil
	}
	ctl, _, err := m.cfg.Registry.GetControl(ctx, id)
	if errors.Is(err, federation.ErrNotFound) {
		ctl, err = federation.Control{}, nil
	}
	switch {
	case err != nil:
		return fmt.Errorf("read the control record of volume %s: %w", id, err)
	case unnoted != nil:
		return &belief.DoubtError{Why: unnoted, End: l.End(), Epoch: lastEpoch(l), Member: ctl.CountsOn(m.cfg.Self), Unnoted: true}
	case found.Doubt != nil && !as.Identity.IsZero() && !l.End().Less(as.End):
		return nil // a person gave up what is lost
	case found.Doubt != nil:
		return &belief.DoubtError{Why: found.Doubt, End: found.End, Epoch: lastEpoch(l), Member: ctl.CountsOn(m.cfg.Self)}
	case ctl.CountsOn(m.cfg.Self) && belief.HadLog(ctl):
		return &belief.DoubtError{Why: errors.New("it is empty"), Member: true}
	}
	return nil
}

// key names a log of a volume: another log of it is not the same.
func key(id string, l *log.Log) string { return id + "/" + l.Identity() }

// errNoted: the log is in doubt from its next open on.
var errNoted = errors.New("that the log on this pool was given up is noted there now; it is opened again")

// noteAgain notes on the pool that a log was given up, if that failed before. It returns why it was
// given up while it still cannot be noted: the log must not be used as it is. This is known until
// the process ends. A log that takes part again after that is refused once more.
func (m *Manager) noteAgain(l *log.Log, id string) (why, err error) {
	why = m.unnoted[key(id, l)]
	if why == nil {
		return nil, nil
	}
	if l.Recovered().Doubt == nil {
		if err := l.Disown(why); err != nil {
			return fmt.Errorf("%w; that cannot be noted there yet: %w", why, err), nil
		}
		err = errNoted
	}
	delete(m.unnoted, key(id, l))
	return nil, err
}

// lastEpoch returns the epoch of the last of a log; 0: it is empty.
func lastEpoch(l *log.Log) uint64 {
	if all := l.Epochs(); len(all) > 0 {
		return all[len(all)-1].Epoch
	}
	return 0
}

// Left is what is left of a log in doubt.
type Left struct {
	End   log.Position
	Epoch uint64 // of the last of it
	Why   error  // it is in doubt
}

// Doubt returns what is left of the log of a volume's copy that is closed because the log is in
// doubt. Why is nil if it is not.
func (m *Manager) Doubt(id string) Left {
	m.mu.Lock()
	defer m.mu.Unlock()
	var doubt *belief.DoubtError
	if s := m.volumes[id]; s != nil && errors.As(s.problem, &doubt) && doubt.Member {
		return Left{doubt.End, doubt.Epoch, s.problem}
	}
	return Left{}
}
