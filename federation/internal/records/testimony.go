// SPDX-License-Identifier: Apache-2.0

package records

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/internal/about"
)

// absorb takes newer control records from testimonies, and from the registry, into the archive:
// this gateway may have slept when they changed, or a home changed them since. One of its own is
// newer if the archive failed. Where they branched since, a person decides.
func (t *tending) absorb() error {
	kept := map[string]int{}
	for i, x := range t.archive {
		kept[x.Key] = i
	}
	claims := map[string][]federation.Control{}
	said := map[string][][]byte{} // as they were signed
	for k, p := range t.all {
		if p.Err != nil || p.Hidden != nil {
			continue
		}
		k, value, err := claimed(k, p)
		if err != nil {
			return err
		}
		var known []byte
		if i, ok := kept[k]; ok && !t.archive[i].Deleted {
			known = t.archive[i].Value
		}
		if k == "" || t.r.counts(k, value, known, nil) != nil {
			continue
		}
		c, err := control(k, value)
		if err != nil {
			return err
		}
		claims[k], said[k] = append(claims[k], c), append(said[k], value)
	}
	top := t.top()
	var news []federation.Record
	for k, all := range claims {
		i, known := kept[k]
		if known {
			if t.archive[i].Deleted {
				continue
			}
			own, err := control(k, t.archive[i].Value)
			if err != nil {
				continue //nolint:nilerr // the others' may be read, this gateway's testimony says what it has
			}
			all = slices.DeleteFunc(all, func(c federation.Control) bool { return own.DescendsFrom(c) || !c.DescendsFrom(own) })
		}
		tips := federation.Branches(all)
		if len(tips) != 1 {
			continue
		}
		x := federation.Record{Key: k, Value: valueOf(k, said[k], tips[0]), Revision: top + 1}
		news = append(news, x)
		if known {
			t.archive[i] = x
		} else {
			t.archive = append(t.archive, x)
		}
	}
	if len(news) == 0 {
		return nil
	}
	if err := t.r.kv.archive().Put(news); err != nil {
		return err
	}
	t.r.guard.Turn()
	return nil
}

// valueOf returns that of some values which a control record has.
func valueOf(key string, values [][]byte, is federation.Control) []byte {
	for _, v := range values {
		if c, err := control(key, v); err == nil && c.DescendsFrom(is) && is.DescendsFrom(c) {
			return v
		}
	}
	return nil
}

// counts returns why a value does not count that a gateway testifies. See sealing.Counts.
func (r *Registry) counts(key string, value, known []byte, look func(key string) []byte) error {
	if s, ok := r.kv.KV.(sealing); ok {
		return s.Counts(key, value, known, look)
	}
	return nil
}

// knows is about.Known of what the registry has.
func (r *Registry) knows(all map[string]Pair) func(key string) []byte {
	has, said := map[string][]byte{}, []federation.Testimony(nil)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		var t federation.Testimony
		if p := all[k]; p.Err == nil && strings.HasPrefix(k, testimonyPrefix) && federation.Decode("testimony", k, p.Value, &t) == nil {
			said = append(said, t)
		} else if p.Err == nil {
			has[k] = p.Value
		}
	}
	follows := func(string, []byte, []byte) error { return nil }
	if s, ok := r.kv.KV.(sealing); ok {
		follows = s.Follows
	}
	return about.Known(has, said, follows)
}

// claimed returns the key and the value of the control record that a pair of the registry is, or
// testifies; no key: it does neither.
func claimed(k string, p Pair) (key string, value []byte, err error) {
	if kindOf(k) == federation.KindControl {
		return k, p.Value, nil
	}
	if !strings.HasPrefix(k, testimonyPrefix) {
		return "", nil, nil
	}
	var said federation.Testimony
	if err := federation.Decode("testimony", k, p.Value, &said); err != nil {
		return "", nil, err
	}
	if kindOf(said.Key) != federation.KindControl || said.Deleted {
		return "", nil, nil
	}
	return said.Key, said.Value, nil
}

// testify writes this gateway's notice, and what its archive has otherwise than the registry.
func (t *tending) testify(ctx context.Context, now time.Time) error {
	// What another gateway has otherwise is testified too, so that the newest of all is known.
	named := map[string]bool{}
	for k := range t.all {
		if rest, ok := strings.CutPrefix(k, testimonyPrefix); ok {
			if who, about, _ := strings.Cut(rest, "/"); who != t.gateway {
				named[about] = true
			}
		}
	}
	want, lost := map[string][]byte{}, true
	for _, x := range t.archive {
		p, there := t.all[x.Key]
		switch {
		case x.Key == whole.Key:
			lost = false
			continue
		case kindOf(x.Key) == kindReconciled, kindOf(x.Key) == kindCanary, there && !about.OfVolumes(x.Key):
			continue
		case named[x.Key]:
		case x.Deleted && !there, there && !x.Deleted && bytes.Equal(p.Value, x.Value):
			continue
		}
		if x.Deleted {
			x.Value = nil
		}
		value, err := federation.Encode(federation.Testimony{Gateway: t.gateway, Key: x.Key, Value: x.Value,
			Revision: x.Revision - t.state.Offset, Deleted: x.Deleted})
		if err != nil {
			return err
		}
		want[testimonyPrefix+t.gateway+"/"+x.Key] = value
	}
	var writes []Write
	for k := range t.all {
		if strings.HasPrefix(k, testimonyPrefix+t.gateway+"/") && want[k] == nil && !lost {
			writes = append(writes, Write{Key: k, Delete: true})
		}
	}
	for k, v := range want {
		if !bytes.Equal(t.all[k].Value, v) {
			writes = append(writes, Write{Key: k, Value: v})
		}
	}
	if len(writes) > 0 {
		if err := t.notice(ctx, now, false); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(writes, batch) {
		if _, err := t.r.commit(ctx, "write", "testimony", t.gateway, nil, part...); err != nil {
			return err
		}
	}
	return t.notice(ctx, now, !lost)
}

// notice writes the notice, unless it is there.
func (t *tending) notice(ctx context.Context, now time.Time, complete bool) error {
	k := noticePrefix + t.gateway
	n := federation.Notice{Gateway: t.gateway, Why: t.state.Rewound, At: now, Cluster: t.state.Cluster,
		Revision: t.state.Revision - t.state.Offset, Reconciled: t.state.Reconciled, Complete: complete}
	if p, ok := t.all[k]; ok {
		var old federation.Notice
		if err := federation.Decode("notice", t.gateway, p.Value, &old); err == nil {
			n.At, n.Swaps = old.At, old.Swaps
			if n == old {
				return nil
			}
		}
	}
	value, err := federation.Encode(n)
	if err != nil {
		return err
	}
	// It is conditional, so that it does not come late, behind the reconciliation that ends it.
	conds := []Condition{{Key: string(kindReconciled), Revision: t.reconciledAt()}}
	rev, err := t.r.commit(ctx, "write", "notice", t.gateway, conds, Write{Key: k, Value: value})
	if err == nil {
		t.all[k] = Pair{Key: k, Value: value, Revision: rev}
	}
	return err
}

// reconciledAt is the revision of the last reconciliation, as this gateway sees it.
func (t *tending) reconciledAt() federation.Revision {
	if p, ok := t.all[string(kindReconciled)]; ok {
		return p.Revision + t.state.Offset
	}
	return 0
}
