// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"errors"
	"testing"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// fakeCopy is a copy with one file, whose gateway is home in an epoch; 0: it is not.
type fakeCopy struct {
	epoch uint64
	serve error
}

func (c *fakeCopy) GetAttr(_ context.Context, _ volume.Request, h volume.Handle) (volume.Attr, error) {
	return volume.Attr{Handle: h, Type: volume.Regular}, nil
}

func (c *fakeCopy) MayServe() error         { return c.serve }
func (c *fakeCopy) Leading() (uint64, bool) { return c.epoch, c.epoch != 0 }

// events is a registry that reports these events, and no more.
type events []federation.Event

func (w events) Watch(_ context.Context, f func(federation.Event) error) error {
	for _, e := range w {
		if err := f(e); err != nil {
			return err
		}
	}
	return errors.New("no more events")
}

func (events) Head(context.Context) (federation.Head, error) { return federation.Head{}, nil }

// heard returns a view that has these events.
func heard(all ...federation.Event) *view.View {
	v := view.New("a", federation.KindSite, federation.KindAlive, federation.KindVolume, federation.KindAdmission)
	_ = v.Watch(context.Background(), events(all)) // it ends with the events
	return v
}

// TestLockIsRefusedByTheHomeAlone: only the gateway that is still home may refuse a lock. A grant
// is not revoked: the gateway that got it registers it with the next home.
func TestLockIsRefusedByTheHomeAlone(t *testing.T) {
	for _, now := range []fakeCopy{{epoch: 0}, {epoch: 2}, {epoch: 1, serve: journal.ErrNoLease}} {
		for _, outcome := range []error{volume.ErrLocked, nil} {
			c := &fakeCopy{epoch: 1}
			l := NewTable(Config{Volume: "v", Gateway: "ga", View: heard(), Copy: c})
			if err := l.Begin(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			k := volume.Lock{Owner: volume.LockOwner{Gateway: "ga", Owner: "o"}, End: 9}
			err := l.Session("ga", forward.Registration{}, true).onFile(t.Context(), volume.Request{}, volume.Handle{Ino: 7}, k,
				true, func() error {
					*c = now // while the lock is looked at
					return outcome
				})
			if errors.Is(err, volume.ErrLocked) || (err == nil) != (outcome == nil) {
				t.Errorf("a former home, now %+v, that came to %v says %v", now, outcome, err)
			}
		}
	}
}

// TestGraceUntilTheRegistryIsHeard: before, it is not known which gateways may have locks.
func TestGraceUntilTheRegistryIsHeard(t *testing.T) {
	alive := federation.Event{Kind: federation.KindAlive, Name: "gb", Alive: &federation.Alive{Gateway: "gb", Site: "b"}}
	for synced, events := range map[bool][]federation.Event{false: {alive}, true: {alive, {Kind: federation.KindSynced}}} {
		v := heard(events...)
		if _, got := v.Living(); got != synced {
			t.Fatalf("heard out: %t", got)
		}
		l := NewTable(Config{Volume: "v", Gateway: "ga", View: v, Copy: &fakeCopy{}})
		if grace := l.grace(); grace == synced {
			t.Errorf("grace: %t when the registry is heard out: %t", grace, synced)
		}
	}
}

// TestLocksOfAForbiddenSite: what a site holds is others' as soon as the volume's owner lets it do
// nothing any more, also while its gateway lives and gives nothing back.
func TestLocksOfAForbiddenSite(t *testing.T) {
	site := func(name, organization string) federation.Event {
		return federation.Event{Kind: federation.KindSite, Name: name, Site: &federation.Site{Name: name, Organization: organization,
			Gateways: []federation.Gateway{{Name: "g" + name, Incarnation: "i"}}}}
	}
	for _, granted := range []bool{true, false} {
		record := &federation.Volume{UUID: "v", Owner: "A", Sites: []string{"a"}}
		if granted {
			record.Grants = []federation.Grant{{Site: "b", Namespace: "lab", Access: federation.ReadWrite}}
		}
		v := heard(site("a", "A"), site("b", "B"), federation.Event{Kind: federation.KindVolume, Name: "v", Volume: record},
			federation.Event{Kind: federation.KindAlive, Name: "gb", Alive: &federation.Alive{Gateway: "gb", Site: "b", Incarnation: "i"}},
			federation.Event{Kind: federation.KindSynced})
		l := NewTable(Config{Volume: "v", Gateway: "ga", View: v, Copy: &fakeCopy{epoch: 1}})
		if err := l.Begin(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		take := func(gateway string) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.freeing(func() error {
				return l.table.Set(volume.Handle{Ino: 7}, volume.Lock{Owner: volume.LockOwner{Gateway: gateway, Owner: "o"}, End: 9,
					Exclusive: true})
			})
		}
		if err := take("gb"); err != nil {
			t.Fatal(err)
		}
		if err := take("ga"); (err == nil) == granted {
			t.Errorf("granted: %t, and another is told: %v", granted, err)
		}
	}
}
