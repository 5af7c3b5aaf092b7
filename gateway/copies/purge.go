// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/clocks"
)

// purgeEvery is how often a gateway looks what is to be purged, and purgePause the least time
// between two looks. A change of the registry makes it look, and that may change all the time.
const purgeEvery, purgePause = 30 * time.Second, time.Second

// KeepPurging purges deleted volumes when their time has come, and deletes what this gateway has of
// those that were purged, until ctx ends (copies-6).
func (m *Manager) KeepPurging(ctx context.Context) {
	for ctx.Err() == nil {
		changed := m.cfg.View.Changed()
		wait := purgeEvery
		if m.cfg.View.Synced() && m.cfg.Registry.Trusted() == nil && m.purge(ctx) {
			wait = retryAfter
		}
		select {
		case <-m.cfg.Timers.After(purgePause):
		case <-ctx.Done():
		}
		select {
		case <-changed:
		case <-m.unshed:
		case <-m.cfg.Timers.After(wait):
		case <-ctx.Done():
		}
	}
}

// endTime and wipeTime bound one attempt, so that a registry or a store that hangs does not keep
// other volumes waiting. What an attempt has deleted, the next one does not find.
const endTime, wipeTime = 30 * time.Second, 5 * time.Minute

// purge does what can be done now, and reports whether something is to be tried again soon.
func (m *Manager) purge(ctx context.Context) (again bool) {
	all, _ := m.cfg.View.Volumes()
	for _, v := range all {
		if r := v.Record; r != nil && r.Deleted {
			now, yes := m.chosen(ctx, r.PurgeAt(), clocks.ByWord(*r))
			again = yes && m.end(ctx, r.UUID, now) || again
		}
	}
	there, err := m.cfg.Pool.ListVolumes()
	if err != nil {
		m.cfg.Logger.Warn("the pool's volumes cannot be listed", "error", err)
		return true
	}
	again = m.folders.Shed(there) || again
	for _, p := range m.cfg.View.Purges() {
		// A gateway that registered later may have some of it, and one that just heard of the purge
		// may have opened it once more.
		has := m.cfg.Keys.HasSecret(p.Volume) || slices.ContainsFunc(there, func(name string) bool {
			return name == p.Volume || strings.HasPrefix(name, salvagePrefix+p.Volume)
		})
		if has || slices.Contains(p.Pending, m.cfg.Self.Gateway) {
			err := m.wipe(ctx, p)
			if again = again || err != nil; err != nil && ctx.Err() == nil {
				m.cfg.Logger.Warn("a purged volume is not gone from here yet", "volume", p.Name, "uuid", p.Volume, "error", err)
			}
		}
		if _, yes := m.chosen(ctx, p.At.Add(federation.PurgeKept), false); yes && len(p.Pending) == 0 {
			if err := m.cfg.Registry.DeletePurge(ctx, p.Volume); err != nil {
				m.cfg.Logger.Debug("an old purge is not forgotten yet", "uuid", p.Volume, "error", err)
			}
		}
	}
	return again
}

// overdue is how late something is that the chosen gateway should have done. Then others do it.
const overdue = 10 * time.Minute

// chosen reports whether this gateway is the one of its organization to do what was due at a time,
// for sure or by the clock: others may not be shown it. Several that think so do no harm.
func (m *Manager) chosen(ctx context.Context, at time.Time, sure bool) (now time.Time, yes bool) {
	if late := m.cfg.Now().Sub(at); late < 0 || late < overdue && !m.cfg.View.First(m.cfg.Self.Gateway) {
		return now, false
	} else if sure {
		return at, true
	}
	now, err := m.cfg.Agreed(ctx) // clocks-1
	return now, err == nil && !now.Before(at)
}

// end purges a volume, if the registry itself still says that it is deleted and its time has come.
func (m *Manager) end(ctx context.Context, uuid string, now time.Time) (again bool) {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	v, rev, err := m.cfg.Registry.GetVolume(ctx, uuid)
	if err == nil && (!v.Deleted || now.Before(v.PurgeAt())) {
		return false
	}
	if err == nil && v.PurgeAfter.IsZero() {
		// It was deleted with a release that purged nothing, and told people so.
		v.PurgeAfter = now.UTC().Add(federation.TrashTime)
		if _, err = m.cfg.Registry.UpdateVolume(ctx, rev, v); err == nil {
			m.cfg.Logger.Info("a volume that an older release deleted goes when its time is over", "volume", v.Name, "at", v.PurgeAfter)
			return false
		}
	}
	p := federation.Purge{Volume: uuid, At: m.cfg.Now().UTC(), Size: v.Spec.Size, Sites: v.Sites}
	if err == nil {
		for _, member := range m.cfg.View.Members() {
			if m.cfg.View.MayHave(v, member) {
				p.Pending = append(p.Pending, member.Gateway)
			}
		}
		err = m.cfg.Registry.PurgeVolume(ctx, rev, p)
	}
	switch {
	case err == nil:
		m.cfg.Logger.Info("a deleted volume is purged", "volume", v.Name, "uuid", uuid, "deleted", v.DeletedAt)
		return false
	case errors.Is(err, federation.ErrNotFound), errors.Is(ctx.Err(), context.Canceled):
		return false
	}
	m.cfg.Logger.Warn("a deleted volume is not purged yet", "uuid", uuid, "error", err)
	return true
}

// wipe deletes everything that this gateway and its site's store have of a purged volume.
func (m *Manager) wipe(ctx context.Context, p federation.Purge) error {
	ctx, cancel := context.WithTimeout(ctx, wipeTime)
	defer cancel()
	m.mu.Lock()
	open := m.volumes[p.Volume] != nil
	m.mu.Unlock()
	if open {
		return errors.New("it is not closed yet")
	}
	// The registry itself must say it, and be believed after it did.
	_, _, there := m.cfg.Registry.GetVolume(ctx, p.Volume)
	if there == nil {
		return errors.New("the registry has the volume again")
	}
	purges, err := m.cfg.Registry.ListPurges(ctx)
	if err == nil {
		err = m.cfg.Registry.Trusted()
	}
	switch {
	case err != nil:
		return err
	case !errors.Is(there, federation.ErrNotFound):
		return there
	case !slices.ContainsFunc(purges, func(x federation.Purge) bool { return x.Volume == p.Volume }):
		return errors.New("the registry does not say that it was purged")
	}
	if err := m.cfg.Keys.Destroy(p.Volume); err != nil { // keys-4
		return err
	}
	for _, name := range append(m.Salvaged(p.Volume), p.Volume) {
		if err := m.cfg.Pool.Remove(name); err != nil {
			return err
		}
	}
	if err := m.folders.Clear(ctx, p.Volume); err != nil {
		return err
	}
	if err := m.cfg.Registry.LeavePurge(ctx, p.Volume, m.cfg.Self.Gateway); err != nil {
		return err
	}
	m.cfg.Logger.Info("nothing of a purged volume is here any more", "volume", p.Name, "uuid", p.Volume)
	return nil
}
