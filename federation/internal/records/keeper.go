// SPDX-License-Identifier: Apache-2.0

package records

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/internal/about"
)

// Keys that are no federation.Kind.
const (
	kindName        federation.Kind = "name"
	kindGateway     federation.Kind = "gateway"
	kindReconciled  federation.Kind = "reconciled" // one key, the last federation.Reconciliation
	kindCanary      federation.Kind = "canary"     // by gateway, never deleted; see Registry.sing
	noticePrefix                    = "rewound/"   // federation.Notice by gateway
	testimonyPrefix                 = "testimony/" // federation.Testimony by gateway and key
)

func kindOf(key string) federation.Kind {
	kind, _, _ := strings.Cut(key, "/")
	return federation.Kind(kind)
}

// whole is the record of an archive that had everything once. Without it, an archive was lost, or
// never begun.
var whole = federation.Record{Key: federation.WholeArchive, Revision: 1}

// keeper is a KV that a guard watches over. It keeps the guard's archive, and answers from it while
// the guard refuses the registry (protocol-7). All revisions that it returns and takes have the
// guard's offset.
type keeper struct {
	KV
	guard *federation.Guard // nil: there is none

	mu     sync.Mutex
	newest federation.Revision // of what this process archived about volumes
	self   string              // this gateway, as Tend says; empty before
}

func (k *keeper) setSelf(gateway string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.self = gateway
}

func (k *keeper) gateway() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.self
}

// errTurned ends a watch when the guard refused or accepted the registry.
var errTurned = errors.New("the registry's records are to be read again")

func (k *keeper) archive() federation.Archive {
	if k.guard == nil {
		return nil
	}
	return k.guard.Archive()
}

// Get implements KV.
func (k *keeper) Get(ctx context.Context, reads ...Read) ([][]Pair, federation.Head, error) {
	if k.guard == nil {
		return k.KV.Get(ctx, reads...)
	}
	asked := k.ask(reads)
	res, h, err := k.shifted(ctx, asked.Offset, reads...)
	if err != nil {
		return nil, h, err
	}
	if err := k.observe(asked, h, reads, res); err != nil {
		return nil, h, err
	}
	if k.guard.Err() != nil && k.archive() != nil {
		err = k.overlay(reads, res)
	}
	return res, h, err
}

// ask notes what is known before a request.
func (k *keeper) ask(reads []Read) federation.Asked {
	var volumes []string
	for _, r := range reads {
		if v, ok := strings.CutPrefix(r.Key, string(federation.KindControl)+"/"); ok || r.Key == "" {
			volumes = append(volumes, v)
		}
	}
	return k.guard.Ask(volumes...)
}

// shifted reads from the registry, and adds the offset to its revisions.
func (k *keeper) shifted(ctx context.Context, offset federation.Revision, reads ...Read) ([][]Pair, federation.Head, error) {
	res, h, err := k.KV.Get(ctx, reads...)
	for _, pairs := range res {
		for i := range pairs {
			pairs[i].Revision += offset
		}
	}
	h.Revision += offset
	return res, h, err
}

// controls returns the control records among pairs. Those that cannot be read are left out: whoever
// reads them sees the error.
func controls(pairs ...Pair) (out []federation.Control) {
	for _, p := range pairs {
		if kindOf(p.Key) == federation.KindControl && !p.Deleted && p.Err == nil && p.Hidden == nil {
			if c, err := control(p.Key, p.Value); err == nil {
				out = append(out, c)
			}
		}
	}
	return out
}

// observe lets the guard see an answer of the registry, and the archive a list of everything.
func (k *keeper) observe(asked federation.Asked, h federation.Head, reads []Read, res [][]Pair) error {
	err := k.guard.Observe(asked, h, controls(slices.Concat(res...)...)...)
	if errors.Is(err, federation.ErrUnavailable) {
		return err
	}
	// Its other verdicts are kept in the guard. An error of its save matters only to swaps, which
	// save again.
	if k.guard.Err() != nil || k.archive() == nil {
		return nil
	}
	for _, pairs := range res {
		if err := k.branched(pairs); err != nil {
			if errors.Is(err, federation.ErrRewound) {
				return nil
			}
			return err
		}
	}
	for i, r := range reads {
		if r.Prefix && r.Key == "" {
			return k.learn(h, res[i])
		}
	}
	return nil
}

// branched refuses the registry if a control record among pairs is of another branch than the
// archive's: somebody swapped it after the registry went back.
func (k *keeper) branched(pairs []Pair) error {
	for _, c := range controls(pairs...) {
		r, ok, err := k.archive().Get(key(federation.KindControl, c.Volume))
		if err != nil {
			return err
		}
		if !ok || r.Deleted {
			continue
		}
		kept, err := control(r.Key, r.Value)
		if err != nil {
			continue // of another release: nothing is known of what it came from
		}
		if !c.DescendsFrom(kept) && !kept.DescendsFrom(c) { // an ancestor may have been read earlier
			return k.guard.Refuse(fmt.Sprintf("the control record of volume %s was home %s's in epoch %d, and is home %s's in epoch %d, "+
				"which did not come from it", c.Volume, kept.Home.Gateway, kept.Epoch, c.Home.Gateway, c.Epoch))
		}
	}
	return nil
}

// learn brings the archive up to a list of everything.
func (k *keeper) learn(h federation.Head, all []Pair) error {
	kept, err := k.archive().List("")
	if err != nil {
		return err
	}
	old := map[string]federation.Record{}
	for _, r := range kept {
		old[r.Key] = r
	}
	delete(old, whole.Key)
	hidden := map[string]bool{}
	var news []federation.Record
	for _, p := range all {
		was, known := old[p.Key]
		delete(old, p.Key)
		switch {
		case p.Hidden != nil, p.Withheld:
			if _, volume, _ := strings.Cut(p.Key, "/"); kindOf(p.Key) != federation.KindPurged {
				hidden[volume] = true
			}
		case !about.Archived(p.Key), p.Err != nil:
		case !known || was.Revision < p.Revision:
			news = append(news, record(p))
		case was.Revision > p.Revision && was.Revision <= h.Revision && !was.Deleted:
			return k.guard.Refuse(fmt.Sprintf("its record %s was of revision %d and is of %d", p.Key, was.Revision, p.Revision))
		case kindOf(p.Key) == federation.KindControl && was.Revision == p.Revision && !bytes.Equal(was.Value, p.Value):
			return k.guard.Refuse(fmt.Sprintf("the control record %s is another than before at revision %d", p.Key, p.Revision))
		}
	}
	for _, r := range old {
		forged := r.Deleted && r.Value == nil // it never counted, and who wrote it took it away
		if kindOf(r.Key) == kindCanary && r.Revision <= h.Revision && !forged {
			return k.guard.Refuse(fmt.Sprintf("it had a record %s and has none", r.Key))
		}
		if !r.Deleted && r.Revision <= h.Revision && !hidden[about.Volume(r.Key, r.Value)] {
			// What it was stays: it is not believed again (package signed).
			news = append(news, federation.Record{Key: r.Key, Value: r.Value, Revision: h.Revision, Deleted: true})
		}
	}
	return k.put(append(news, whole))
}

// put archives records, and notes the newest. The guard learns first of a reconciliation, of a
// control record that was deleted, and of a volume that was purged.
func (k *keeper) put(records []federation.Record) error {
	for _, r := range records {
		switch kind, name, _ := strings.Cut(r.Key, "/"); {
		case federation.Kind(kind) == kindReconciled && !r.Deleted:
			var d federation.Reconciliation
			if err := federation.Decode("reconciliation", r.Key, r.Value, &d); err != nil {
				return err
			}
			if err := k.guard.Reconciled(d.ID); err != nil {
				return err
			}
		case federation.Kind(kind) == federation.KindControl && r.Deleted, federation.Kind(kind) == federation.KindPurged && !r.Deleted:
			if err := k.guard.Forget(name); err != nil {
				return err
			}
		}
	}
	if err := k.archive().Put(records); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range records {
		if about.OfVolumes(r.Key) {
			k.newest = max(k.newest, r.Revision)
		}
	}
	return nil
}

// buried is what the archive has of a record that is deleted now; nil: nothing.
func (k *keeper) buried(key string) []byte {
	r, _, err := k.archive().Get(key)
	if err != nil {
		return nil
	}
	return r.Value
}

// archivedUpTo returns the newest revision of what this process archived about volumes.
func (k *keeper) archivedUpTo() federation.Revision {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.newest
}

func record(p Pair) federation.Record {
	return federation.Record{Key: p.Key, Value: p.Value, Revision: p.Revision, Deleted: p.Deleted}
}

// overlay replaces what the registry answered by what the archive has. Sites and gateways are the
// registry's, and in lists also those that it lacks.
func (k *keeper) overlay(reads []Read, res [][]Pair) error {
	_, isWhole, err := k.archive().Get(whole.Key)
	if err != nil {
		return err
	}
	for i, r := range reads {
		if !r.Prefix && !about.OfVolumes(r.Key) {
			continue
		}
		var kept []federation.Record
		if r.Prefix {
			var err error
			if kept, err = k.archive().List(r.Key); err != nil {
				return err
			}
		} else {
			one, ok, err := k.archive().Get(r.Key)
			if err != nil {
				return err
			}
			if ok {
				kept = append(kept, one)
			}
		}
		known := map[string]bool{}
		for _, x := range kept {
			known[x.Key] = true
		}
		// Of an archive that was lost, what the registry has is better than nothing.
		out := slices.DeleteFunc(res[i], func(p Pair) bool { return about.OfVolumes(p.Key) && (isWhole || known[p.Key]) })
		there := map[string]bool{}
		for _, p := range out {
			there[p.Key] = true
		}
		for _, x := range kept {
			if !x.Deleted && !there[x.Key] && x.Key != whole.Key && kindOf(x.Key) != kindReconciled {
				out = append(out, Pair{Key: x.Key, Value: x.Value, Revision: x.Revision})
			}
		}
		slices.SortFunc(out, func(a, b Pair) int { return strings.Compare(a.Key, b.Key) })
		res[i] = out
	}
	return nil
}

// Commit implements KV. What is about volumes changes only while nobody refuses the registry.
func (k *keeper) Commit(ctx context.Context, conds []Condition, writes []Write) (bool, federation.Head, error) {
	guarded := slices.ContainsFunc(writes, func(w Write) bool { return about.OfVolumes(w.Key) })
	var asked federation.Asked
	if k.guard != nil {
		asked = k.guard.Ask()
		if err := k.guard.Err(); guarded && err != nil {
			return false, federation.Head{}, err
		}
	}
	raw := make([]Condition, len(conds), len(conds)+1)
	for i, c := range conds {
		raw[i] = c
		if c.Revision == 0 {
			continue
		}
		if raw[i].Revision -= asked.Offset; raw[i].Revision <= 0 {
			return false, federation.Head{}, nil // a revision of before the reconciliation
		}
	}
	if guarded {
		raw = append(raw, Condition{Key: noticePrefix, Prefix: true})
	}
	ok, h, err := k.KV.Commit(ctx, raw, writes)
	h.Revision += asked.Offset
	switch {
	case err != nil:
		return false, h, err
	case !ok && guarded:
		return false, h, k.halted(ctx)
	case !ok:
		return false, h, nil
	}
	if k.guard != nil {
		_ = k.guard.Observe(asked, h) // see observe
	}
	return true, h, k.note(h, writes)
}

// halted returns an error if somebody refuses the registry.
func (k *keeper) halted(ctx context.Context) error {
	res, _, err := k.KV.Get(ctx, Read{Key: noticePrefix, Prefix: true})
	if err != nil || len(res[0]) == 0 {
		return nil //nolint:nilerr // then it is a conflict, as far as is known: nothing was changed in either case
	}
	var n federation.Notice
	if err := res[0][0].decode("notice", res[0][0].Key, &n); err != nil {
		return err
	}
	return fmt.Errorf("%w: gateway %s says: %s; nothing changes until `weir registry reconcile` has brought it forward",
		federation.ErrRewound, n.Gateway, n.Why)
}

// note archives changes of this gateway before they count.
func (k *keeper) note(h federation.Head, writes []Write) error {
	a := k.archive()
	if a == nil || k.guard.Err() != nil {
		return nil
	}
	var news []federation.Record
	for _, w := range writes {
		if about.Archived(w.Key) && !w.Prefix {
			r := federation.Record{Key: w.Key, Value: w.Value, Revision: h.Revision, Deleted: w.Delete}
			if w.Delete {
				r.Value = k.buried(w.Key)
			}
			news = append(news, r)
		}
	}
	if err := k.put(news); err != nil {
		return fmt.Errorf("%w: it was applied, but not archived: %w", federation.ErrUnknown, err)
	}
	return nil
}

// since is what a watch knew before it listed everything.
type since struct {
	asked   federation.Asked
	refused bool
	turned  <-chan struct{} // nil: never closed
}

// since notes what is known before a list.
func (k *keeper) since() since {
	if k.guard == nil {
		return since{}
	}
	turned := k.guard.Turned() // first: what turns after it is noticed
	return since{asked: k.guard.Ask(), refused: k.guard.Err() != nil && k.archive() != nil, turned: turned}
}

// followSince is Follow for a watch that listed everything. It ends with errTurned when the guard
// turned since.
func (k *keeper) followSince(ctx context.Context, was since, after federation.Revision, fn func(federation.Head, []Pair) error) error {
	if k.guard == nil {
		return k.Follow(ctx, after, fn)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		select {
		case <-was.turned:
			end(errTurned)
		case <-ctx.Done():
		}
	}()
	err := k.Follow(ctx, after-was.asked.Offset, func(h federation.Head, pairs []Pair) error {
		select {
		case <-was.turned:
			return errTurned
		default:
		}
		h.Revision += was.asked.Offset
		pairs = slices.Clone(pairs) // they may be shared by other watches
		for i := range pairs {
			pairs[i].Revision += was.asked.Offset
		}
		if was.refused {
			pairs = slices.DeleteFunc(pairs, func(p Pair) bool { return about.OfVolumes(p.Key) })
		} else if err := k.follow(was.asked, h, pairs); err != nil {
			return err
		}
		return fn(h, pairs)
	})
	if errors.Is(context.Cause(ctx), errTurned) {
		return errTurned
	}
	return err
}

// follow lets the guard see what a watch brings, and archives it.
func (k *keeper) follow(asked federation.Asked, h federation.Head, pairs []Pair) error {
	_ = k.guard.Observe(asked, h, controls(pairs...)...) // see observe
	if k.archive() == nil || k.guard.Err() != nil {
		return nil
	}
	if err := k.branched(pairs); err != nil {
		return err
	}
	var news []federation.Record
	for _, p := range pairs {
		if about.Archived(p.Key) && p.Err == nil && p.Hidden == nil {
			r := record(p)
			if p.Deleted {
				r.Value = k.buried(p.Key)
			}
			news = append(news, r)
		}
	}
	return k.put(news)
}
