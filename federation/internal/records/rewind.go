// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/internal/about"
)

// batch is how many records one transaction writes; etcd takes 128.
const batch = 60

// Trusted implements federation.Rewinds.
func (r *Registry) Trusted() error {
	if r.guard == nil {
		return nil
	}
	return r.guard.Err()
}

// Tend implements federation.Rewinds.
func (r *Registry) Tend(ctx context.Context, gateway string, now time.Time) error {
	if r.kv.archive() == nil {
		return nil
	}
	r.kv.setSelf(gateway)
	own, _, err := r.kv.archive().Get(canary(gateway))
	if err != nil {
		return err
	}
	res, _, err := r.get(ctx, "read", "notices", "", Read{Key: noticePrefix, Prefix: true}, Read{Key: canary(gateway)})
	if err != nil {
		return err
	}
	if r.guard.Err() == nil && own.Key != "" && (len(res[1]) == 0 || res[1][0].Revision < own.Revision) {
		_ = r.guard.Refuse(fmt.Sprintf("it does not have the record %s of revision %d any more", own.Key, own.Revision))
	}
	notices := slices.DeleteFunc(res[0], func(p Pair) bool { return p.Err != nil })
	if r.guard.Err() == nil && len(notices) > 0 {
		var n federation.Notice
		if err := notices[0].decode("notice", notices[0].Key, &n); err != nil {
			return err
		}
		_ = r.guard.Refuse(fmt.Sprintf("gateway %s noticed that it went back (%s)", n.Gateway, n.Why))
	}
	if r.guard.Err() == nil {
		if s, ok := r.kv.KV.(sealing); ok {
			_ = s.Heal(ctx) // it is tried again, and says nothing of the registry
		}
		return r.sing(ctx, gateway, own.Revision)
	}
	r.said.Lock()
	defer r.said.Unlock()
	t, h, err := r.tending(ctx, gateway)
	if err != nil {
		return err
	}
	if accepted, err := t.accept(h); accepted || err != nil {
		return err
	}
	if err := t.absorb(); err != nil {
		return err
	}
	return t.testify(ctx, now)
}

func canary(gateway string) string { return string(kindCanary) + "/" + gateway }

// sing writes this gateway's canary if something was archived after the last one. A registry that
// lost that lost the canary too, and shows it even if its revision has grown again since.
func (r *Registry) sing(ctx context.Context, gateway string, last federation.Revision) error {
	upTo := r.kv.archivedUpTo()
	if upTo <= last {
		return nil
	}
	_, err := r.put(ctx, "write", "canary", gateway, canary(gateway), nil, struct {
		After federation.Revision `json:"after"`
	}{upTo})
	return err
}

// tending reads what is known about a registry that is refused. The caller has locked r.said.
func (r *Registry) tending(ctx context.Context, gateway string) (t tending, h federation.Head, err error) {
	t = tending{r: r, gateway: gateway, state: r.guard.State()}
	if t.all, h, err = r.everything(ctx); err != nil {
		return t, h, err
	}
	t.archive, err = r.kv.archive().List("")
	return t, h, err
}

// everything reads the registry itself, by key.
func (r *Registry) everything(ctx context.Context) (map[string]Pair, federation.Head, error) {
	res, h, err := r.kv.KV.Get(ctx, Read{Prefix: true})
	if err != nil {
		return nil, h, wrap("read", "registry", "", err)
	}
	all := make(map[string]Pair, len(res[0]))
	for _, p := range res[0] {
		all[p.Key] = p
	}
	return all, h, nil
}

// tending is one look at a registry that this gateway refuses.
type tending struct {
	r       *Registry
	gateway string
	all     map[string]Pair // what the registry has, with its own revisions
	archive []federation.Record
	state   federation.GuardState
}

// accept believes the registry again if a person reconciled it since, nobody else refuses it, and
// it has nothing older than the archive.
func (t *tending) accept(h federation.Head) (bool, error) {
	for k := range t.all {
		if strings.HasPrefix(k, noticePrefix) {
			return false, nil // reconciling deletes all notices
		}
	}
	last, err := reconciliation(t.all)
	if err != nil || last.ID <= t.state.Reconciled {
		return false, err
	}
	offset := t.top()
	for _, x := range t.archive {
		if behind, err := t.behind(x); behind || err != nil {
			return false, err
		}
	}
	if forgotten, err := t.forgotten(); forgotten || err != nil {
		return false, err
	}
	records := []federation.Record{whole}
	for _, x := range t.archive {
		if t.all[x.Key].Hidden != nil { // it may be shown again
			records = append(records, x)
		}
	}
	for _, x := range t.archive { // else what was deleted could come back when the registry goes back once more
		if _, ok := t.all[x.Key]; x.Deleted && !ok {
			records = append(records, x)
		}
	}
	changes := map[string]uint64{}
	for _, p := range t.all {
		if !about.Archived(p.Key) || p.Err != nil || p.Hidden != nil {
			continue
		}
		if kindOf(p.Key) == federation.KindControl {
			c, err := control(p.Key, p.Value)
			if err != nil {
				return false, err
			}
			changes[c.Volume] = c.Change
		}
		p.Revision += offset
		records = append(records, record(p))
	}
	if err := t.r.kv.archive().Replace(records); err != nil {
		return false, err
	}
	h.Revision += offset
	return true, t.r.guard.Accept(h, offset, changes, last.ID)
}

// behind reports whether the registry has something older than the archive's record x. A volume's
// control record and keyring stay until the volume is purged.
func (t *tending) behind(x federation.Record) (bool, error) {
	k := kindOf(x.Key)
	if k == federation.KindPurged && !x.Deleted {
		_, volume, _ := strings.Cut(x.Key, "/")
		_, inUse := t.all[key(federation.KindVolume, volume)] // else the volume would come back
		return !t.purged(x.Key) && !inUse, nil
	}
	if x.Deleted || k != federation.KindControl && k != federation.KindKeyring && k != federation.KindVolume || t.purged(x.Key) {
		return false, nil
	}
	p, ok := t.all[x.Key]
	if !ok || k != federation.KindControl || p.Hidden != nil {
		return !ok, nil
	}
	has, err := control(p.Key, p.Value)
	if err != nil {
		return false, err
	}
	kept, err := control(x.Key, x.Value)
	return !has.DescendsFrom(kept), err
}

// forgotten reports whether the registry has less than the guard remembers of a control record that
// the archive lost.
func (t *tending) forgotten() (bool, error) {
	remembers := maps.Clone(t.state.Changes)
	for _, x := range t.archive {
		if kindOf(x.Key) != federation.KindControl {
			continue
		}
		var c federation.Control
		if !x.Deleted {
			var err error
			if c, err = control(x.Key, x.Value); err != nil {
				return false, err
			}
		}
		if v := strings.TrimPrefix(x.Key, string(federation.KindControl)+"/"); x.Deleted || c.Change >= remembers[v] {
			delete(remembers, v)
		}
	}
	for v, change := range remembers {
		if t.purged(key(federation.KindControl, v)) {
			continue
		}
		p, ok := t.all[key(federation.KindControl, v)]
		if ok && p.Hidden != nil {
			continue
		}
		if !ok || p.Err != nil {
			return true, nil
		}
		if c, err := control(p.Key, p.Value); err != nil || c.Change < change {
			return true, err
		}
	}
	return false, nil
}

// purged reports whether the registry says that a record's volume was purged.
func (t *tending) purged(k string) bool {
	_, volume, _ := strings.Cut(k, "/")
	_, ok := t.all[key(federation.KindPurged, volume)]
	return ok
}

// top is the highest revision that this gateway knows.
func (t *tending) top() federation.Revision {
	top := t.state.Revision
	for _, x := range t.archive {
		top = max(top, x.Revision)
	}
	return top
}

// swapTestimony replaces the control record of a volume whose home is here in this gateway's
// testimony, while the registry is refused. refused is why. Every registered gateway must have
// testified, so that no newer record is unknown here.
func (r *Registry) swapTestimony(ctx context.Context, old, next federation.Control, refused error) (federation.Revision, error) {
	self := r.kv.gateway()
	if old.Home.Gateway != self || next.Home.Gateway != self {
		return 0, refused
	}
	r.said.Lock()
	defer r.said.Unlock()
	t, _, err := r.tending(ctx, self)
	if err != nil {
		return 0, err
	}
	w, err := r.rewindOf(t.all)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(w.Notices, func(n federation.Notice) bool { return n.Gateway == self })
	if i < 0 {
		return 0, refused
	}
	if missing := w.Missing(); len(missing) > 0 {
		return 0, fmt.Errorf("%w; gateways %v may know of a later home, and have not said what they know", refused, missing)
	}
	k := key(federation.KindControl, next.Volume)
	if p, ok := t.all[k]; ok && p.Hidden == nil { // gateways that have the same do not testify it
		there, err := control(k, p.Value)
		if err != nil {
			return 0, err
		}
		if !old.DescendsFrom(there) {
			return 0, fmt.Errorf("%w; the registry has a later record of volume %s, or another branch", refused, next.Volume)
		}
	}
	for _, said := range w.Testimonies {
		if said.Key != k || said.Deleted {
			continue
		}
		theirs, err := control(k, said.Value)
		if err != nil {
			return 0, err
		}
		switch {
		case old.DescendsFrom(theirs):
		case theirs.DescendsFrom(old): // the next look takes it into the archive
			return 0, conflict("swap", "control", next.Volume)
		default:
			return 0, fmt.Errorf("%w; gateway %s knows another branch of volume %s's record", refused, said.Gateway, next.Volume)
		}
	}
	x := federation.Record{Key: k, Revision: t.top() + 1}
	if x.Value, err = federation.Encode(next); err != nil {
		return 0, wrap("swap", "control", next.Volume, err)
	}
	if s, ok := r.kv.KV.(sealing); ok { // it is handed on as it is
		if x.Value, err = s.Sealed(k, x.Value); err != nil {
			return 0, wrap("swap", "control", next.Volume, err)
		}
	}
	said, err := federation.Encode(federation.Testimony{Gateway: self, Key: k, Value: x.Value, Revision: x.Revision - t.state.Offset})
	if err != nil {
		return 0, wrap("swap", "control", next.Volume, err)
	}
	n := w.Notices[i]
	n.Swaps++ // a reconciliation that has not seen it fails
	notice, err := federation.Encode(n)
	if err != nil {
		return 0, wrap("swap", "control", next.Volume, err)
	}
	ok, _, err := r.kv.KV.Commit(ctx, []Condition{{Key: noticePrefix + self, Revision: w.Revisions[i]}},
		[]Write{{Key: noticePrefix + self, Value: notice}, {Key: testimonyPrefix + self + "/" + k, Value: said}})
	switch {
	case err != nil:
		return 0, wrap("swap", "control", next.Volume, err)
	case !ok:
		return 0, conflict("swap", "control", next.Volume)
	}
	if err := r.kv.archive().Put([]federation.Record{x}); err != nil {
		return 0, &federation.Error{Op: "swap", Kind: "control", Name: next.Volume, Err: federation.ErrUnknown, Detail: err.Error()}
	}
	r.guard.Turn()
	return x.Revision, nil
}

func control(key string, value []byte) (c federation.Control, err error) {
	return c, federation.Decode("control", strings.TrimPrefix(key, string(federation.KindControl)+"/"), value, &c)
}

func reconciliation(all map[string]Pair) (d federation.Reconciliation, err error) {
	if p, ok := all[string(kindReconciled)]; ok && p.Err == nil {
		err = federation.Decode("reconciliation", p.Key, p.Value, &d)
	}
	return d, err
}

// Notices implements federation.Rewinds.
func (r *Registry) Notices(ctx context.Context) ([]federation.Notice, error) {
	return list[federation.Notice](ctx, r, "notice", noticePrefix)
}

// ReadRewind implements federation.Rewinds.
func (r *Registry) ReadRewind(ctx context.Context) (federation.Rewind, error) {
	all, _, err := r.everything(ctx)
	if err != nil {
		return federation.Rewind{}, err
	}
	return r.rewindOf(all)
}

// rewindOf returns what the registry has about having gone back.
func (r *Registry) rewindOf(all map[string]Pair) (out federation.Rewind, err error) {
	knows := r.knows(all)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		p := all[k]
		switch {
		case p.Err != nil && !about.Archived(k), p.Hidden != nil:
		case strings.HasPrefix(k, noticePrefix):
			var n federation.Notice
			if err := federation.Decode("notice", k, p.Value, &n); err != nil {
				return out, err
			}
			out.Notices, out.Revisions = append(out.Notices, n), append(out.Revisions, p.Revision)
		case strings.HasPrefix(k, testimonyPrefix):
			var t federation.Testimony
			if err := federation.Decode("testimony", k, p.Value, &t); err != nil {
				return out, err
			}
			if t.Deleted || r.counts(t.Key, t.Value, knows(t.Key), knows) == nil {
				out.Testimonies = append(out.Testimonies, t)
			}
		case about.Archived(k) && kindOf(k) != kindReconciled:
			out.Records = append(out.Records, record(p))
		}
	}
	out.Last, err = reconciliation(all)
	return out, err
}

// Reconcile implements federation.Rewinds.
func (r *Registry) Reconcile(ctx context.Context, w federation.Rewind, plan []federation.Correction,
	decision federation.Reconciliation) error {
	for _, c := range plan {
		if c.Undecided() {
			return &federation.Error{Op: "reconcile", Kind: "registry", Name: c.Key, Err: federation.ErrInvalid,
				Detail: c.Why + ": decide which to keep"}
		}
	}
	for part := range slices.Chunk(plan, batch) {
		conds, writes := make([]Condition, len(part)), make([]Write, len(part))
		for i, c := range part {
			conds[i] = Condition{Key: c.Key, Revision: c.Was}
			writes[i] = Write{Key: c.Key, Value: c.Value, Delete: c.Deleted, Verbatim: len(c.Branches) == 0}
		}
		if err := r.decide(ctx, conds, writes); err != nil {
			return err
		}
	}
	value, err := federation.Encode(decision)
	if err != nil {
		return wrap("reconcile", "registry", "", err)
	}
	var said []Condition
	for i, n := range w.Notices {
		said = append(said, Condition{Key: noticePrefix + n.Gateway, Revision: w.Revisions[i]})
	}
	return r.decide(ctx, said, []Write{{Key: string(kindReconciled), Value: value},
		{Key: noticePrefix, Delete: true, Prefix: true}, {Key: testimonyPrefix, Delete: true, Prefix: true}})
}

// decide changes the registry in spite of notices.
func (r *Registry) decide(ctx context.Context, conds []Condition, writes []Write) error {
	ok, _, err := r.kv.KV.Commit(ctx, conds, writes)
	if err != nil {
		return wrap("reconcile", "registry", "", err)
	}
	if !ok {
		return conflict("reconcile", "registry", "")
	}
	return nil
}
