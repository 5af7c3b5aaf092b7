// SPDX-License-Identifier: Apache-2.0

// Package sieve stands between a registry's records and where they are kept. It signs what is
// written, and holds back what does not count (package signed).
package sieve

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/internal/records"
	"github.com/weir-storage/weir/federation/signed"
)

// Sieve is a records.KV over another. Its methods may be called from many goroutines.
type Sieve struct {
	records.KV
	seal  *signed.Seal
	guard *federation.Guard // nil: nothing is kept to compare with, or to put back

	mu     sync.Mutex
	asked  bool            // for the charter
	forged map[string]mark // what does not count, by key
}

// mark is what the registry has of a key that does not count.
type mark struct {
	at   federation.Revision // 0: the key is gone
	heal bool                // it is to be put back
}

// New wraps kv. The archive is that of guard, which may be nil, and may have none.
func New(kv records.KV, seal *signed.Seal, guard *federation.Guard) *Sieve {
	return &Sieve{KV: kv, seal: seal, guard: guard, forged: map[string]mark{}}
}

// kept is the archive's record of a key; false: there is none, or it was deleted.
func (s *Sieve) kept(key string) (federation.Record, bool) {
	if s.guard == nil || s.guard.Archive() == nil {
		return federation.Record{}, false
	}
	r, ok, err := s.guard.Archive().Get(key)
	return r, err == nil && ok && !r.Deleted
}

func (s *Sieve) archives() bool { return s.guard != nil && s.guard.Archive() != nil }

// charter takes the charter that the registry has: who signs what follows from it.
func (s *Sieve) charter(ctx context.Context, again bool) {
	s.mu.Lock()
	was := s.asked
	s.asked = true
	s.mu.Unlock()
	if was && !again {
		return
	}
	res, _, err := s.KV.Get(ctx, records.Read{Key: string(federation.KindCharter)})
	if err == nil && len(res[0]) > 0 {
		s.seal.Adopt(res[0][0].Value)
		return
	}
	if err != nil && !was {
		s.mu.Lock()
		s.asked = false
		s.mu.Unlock()
	}
}

// batch is what came at once.
type batch struct {
	*Sieve
	ctx      context.Context
	accepted map[string][]byte // of this batch; nil: deleted
	whole    bool              // it has everything there is
	reread   bool              // the charter was read again for it
}

// look is what counts of another key.
func (b *batch) look(key string) []byte {
	if v, ok := b.accepted[key]; ok || b.whole {
		return v
	}
	r, _ := b.kept(key)
	return r.Value
}

// lookup is look, if there is anything to look at.
func (b *batch) lookup() signed.Lookup {
	if !b.whole && !b.archives() {
		return nil
	}
	return b.look
}

// rank says in which order records are looked at: first those by which others are judged. A purge
// is judged by what is known of its volume, and says that its records are gone.
func rank(p records.Pair) int {
	if p.Deleted {
		return 5
	}
	switch signed.KindOf(p.Key) {
	case federation.KindCharter:
		return 0
	case federation.KindSite:
		return 1
	case federation.KindPurged:
		return 2
	case federation.KindVolume:
		return 3
	}
	return 4
}

// sift looks at pairs, and returns for each what becomes of it. lazily leaves out the kind that is
// only shown, of which there is much.
func (b *batch) sift(pairs []records.Pair, lazily bool) []fate {
	out := make([]fate, len(pairs))
	order := make([]int, len(pairs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return rank(pairs[x]) - rank(pairs[y]) })
	for _, i := range order {
		p := pairs[i]
		switch {
		case signed.KindOf(p.Key) == federation.KindCharter && !p.Deleted:
			b.seal.Adopt(p.Value)
		case !signed.Covers(p.Key), lazily && signed.KindOf(p.Key) == federation.KindObserved:
		case p.Deleted:
			out[i] = b.deleted(p)
		default:
			out[i] = b.judge(p)
		}
	}
	return out
}

// fate is what becomes of a pair; zero: it counts.
type fate struct {
	why  error
	kept *federation.Record // what goes on in its place; nil: nothing is known
}

func (b *batch) judge(p records.Pair) fate {
	before, known := b.kept(p.Key)
	check := func() error { return b.seal.Check(p.Key, p.Value, before.Value, b.lookup()) }
	err := check()
	if err != nil && !b.reread {
		b.reread = true
		b.charter(b.ctx, true) // the signer's organization may be new
		err = check()
	}
	if err == nil {
		b.accepted[p.Key] = p.Value
		b.good(p.Key)
		return fate{}
	}
	return b.refuse(p.Key, p.Revision, err, before, known)
}

func (b *batch) refuse(key string, at federation.Revision, why error, before federation.Record, known bool) fate {
	b.bad(key, mark{at, true}, why)
	if !known {
		b.accepted[key] = nil
		return fate{why: why}
	}
	b.accepted[key] = before.Value
	return fate{why: why, kept: &before}
}

var errGone = errors.New("it was deleted, and its volume was not purged")

// deleted judges that a record is gone.
func (b *batch) deleted(p records.Pair) fate {
	if signed.Stays(p.Key) && !b.seal.Since().IsZero() {
		if before, known := b.kept(p.Key); known && !b.purged(p.Key) {
			return b.refuse(p.Key, 0, errGone, before, true)
		}
	}
	b.accepted[p.Key] = nil
	b.good(p.Key)
	return fate{}
}

func purgeOf(key string) string {
	_, volume, _ := strings.Cut(key, "/")
	return string(federation.KindPurged) + "/" + volume
}

// purged reports whether a key's volume was purged, as far as that counts.
func (b *batch) purged(key string) bool {
	k := purgeOf(key)
	if b.look(k) != nil {
		return true
	}
	if _, seen := b.accepted[k]; seen || b.whole {
		return false
	}
	res, _, err := b.KV.Get(b.ctx, records.Read{Key: k})
	return err == nil && len(res[0]) > 0 && b.judge(res[0][0]).why == nil
}

// good notes that what the registry has of a key counts.
func (s *Sieve) good(key string) {
	s.mu.Lock()
	delete(s.forged, key)
	s.mu.Unlock()
}

// bad notes that what the registry has of a key does not count, and tells it once.
func (s *Sieve) bad(key string, is mark, why error) {
	s.mu.Lock()
	was, known := s.forged[key]
	is.heal = is.heal || was.heal
	s.forged[key] = is
	s.mu.Unlock()
	if !known || was.at != is.at {
		s.seal.Refuse(key, why)
	}
}

// Get implements records.KV. In place of what does not count it answers with what the archive has,
// or with a pair that has an error.
func (s *Sieve) Get(ctx context.Context, reads ...records.Read) ([][]records.Pair, federation.Head, error) {
	s.charter(ctx, false)
	res, h, err := s.KV.Get(ctx, reads...)
	if err != nil {
		return res, h, err
	}
	whole := slices.ContainsFunc(reads, func(r records.Read) bool { return r.Prefix && r.Key == "" })
	b := &batch{Sieve: s, ctx: ctx, accepted: map[string][]byte{}, whole: whole}
	for i, fates := range b.all(res, whole) {
		for j, f := range fates {
			if f.why != nil {
				res[i][j] = s.instead(res[i][j], f)
			}
		}
		if res[i], err = b.missing(reads[i], res[i]); err != nil {
			return nil, h, err
		}
	}
	return res, h, nil
}

// all sifts several answers as one.
func (b *batch) all(res [][]records.Pair, lazily bool) [][]fate {
	fates := b.sift(slices.Concat(res...), lazily)
	out := make([][]fate, len(res))
	for i, pairs := range res {
		out[i], fates = fates[:len(pairs)], fates[len(pairs):]
	}
	return out
}

// instead is what is answered in place of a pair.
func (s *Sieve) instead(p records.Pair, f fate) records.Pair {
	if f.kept == nil {
		p.Err, p.Raw, p.Value = f.why, p.Value, nil // it says nothing, but is in the way
		return p
	}
	return s.pair(*f.kept)
}

// pair is an archived record as the registry had it.
func (s *Sieve) pair(r federation.Record) records.Pair {
	return records.Pair{Key: r.Key, Value: r.Value, Revision: r.Revision - s.guard.Ask().Offset}
}

// missing adds records that the registry lacks, although nobody purged their volumes.
func (b *batch) missing(r records.Read, pairs []records.Pair) ([]records.Pair, error) {
	if !b.archives() || b.seal.Since().IsZero() || r.Key != "" && !signed.Stays(r.Key) || b.guard.Err() != nil {
		return pairs, nil
	}
	var kept []federation.Record
	if r.Prefix {
		var err error
		if kept, err = b.guard.Archive().List(r.Key); err != nil {
			return nil, err
		}
	} else if len(pairs) == 0 {
		if one, ok := b.kept(r.Key); ok {
			kept = append(kept, one)
		}
	}
	there := map[string]bool{}
	for _, p := range pairs {
		there[p.Key] = true
	}
	added := false
	for _, x := range kept {
		if x.Deleted || there[x.Key] || !signed.Stays(x.Key) || !signed.Has(x.Value) || b.purged(x.Key) {
			continue
		}
		// It may be gone for longer than it is remembered that volumes were purged: nothing is put
		// back.
		b.bad(x.Key, mark{}, errGone)
		pairs, added = append(pairs, b.pair(x)), true
	}
	if added {
		slices.SortFunc(pairs, func(x, y records.Pair) int { return strings.Compare(x.Key, y.Key) })
	}
	return pairs, nil
}

// Follow implements records.KV. Changes that do not count are left out if something is known of
// their keys.
func (s *Sieve) Follow(ctx context.Context, after federation.Revision, fn func(federation.Head, []records.Pair) error) error {
	return s.KV.Follow(ctx, after, func(h federation.Head, pairs []records.Pair) error {
		b := &batch{Sieve: s, ctx: ctx, accepted: map[string][]byte{}}
		out := make([]records.Pair, 0, len(pairs))
		for i, f := range b.sift(pairs, true) {
			p := pairs[i]
			switch {
			case f.why == nil:
			case f.kept != nil:
				continue
			default:
				p = s.instead(p, f)
			}
			out = append(out, p)
		}
		return fn(h, out)
	})
}

// Commit implements records.KV. It signs what is written.
func (s *Sieve) Commit(ctx context.Context, conds []records.Condition, writes []records.Write) (bool, federation.Head, error) {
	if s.seal.Signs() {
		if err := s.sign(ctx, writes); err != nil {
			return false, federation.Head{}, err
		}
	}
	return s.KV.Commit(ctx, conds, writes)
}

// sign signs the values of writes.
func (s *Sieve) sign(ctx context.Context, writes []records.Write) error {
	var reads []records.Read
	for _, w := range writes {
		if w.Delete || w.Verbatim || signed.Has(w.Value) {
			continue
		}
		for _, k := range signed.Needs(w.Key) {
			reads = append(reads, records.Read{Key: k})
		}
	}
	values := map[string][]byte{}
	if len(reads) > 0 {
		res, _, err := s.Get(ctx, reads...)
		if err != nil {
			return err
		}
		for _, pairs := range res {
			for _, p := range pairs {
				values[p.Key] = p.Value
			}
		}
	}
	for i, w := range writes {
		if w.Delete || w.Verbatim {
			continue
		}
		value, err := s.seal.Sign(w.Key, w.Value, func(k string) []byte { return values[k] })
		if err != nil {
			return &federation.Error{Op: "sign", Kind: string(signed.KindOf(w.Key)), Name: w.Key, Err: federation.ErrInvalid,
				Detail: err.Error()}
		}
		writes[i].Value = value
	}
	return nil
}

// Sealed returns a value with this process's signature, for somebody to hand on.
func (s *Sieve) Sealed(key string, value []byte) ([]byte, error) {
	return s.seal.Sign(key, value, func(string) []byte { return nil })
}

// Endorsed returns a value with this process's signature, instead of any that it has.
func (s *Sieve) Endorsed(key string, value []byte) ([]byte, error) { return s.seal.Endorse(key, value) }

// Counts returns why a value does not count that somebody says was at a key.
func (s *Sieve) Counts(key string, value []byte) error {
	before, _ := s.kept(key)
	b := &batch{Sieve: s, accepted: map[string][]byte{}}
	return s.seal.Check(key, value, before.Value, b.lookup())
}

// Heal puts back what the archive has in place of what does not count (signed-6). Somebody else may
// have done it.
func (s *Sieve) Heal(ctx context.Context) error {
	s.mu.Lock()
	var keys []string
	for k, m := range s.forged {
		if m.heal {
			keys = append(keys, k)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(keys, func(a, b string) int { // sites first: by them others are judged
		return cmp.Or(rank(records.Pair{Key: a})-rank(records.Pair{Key: b}), strings.Compare(a, b))
	})
	var all error
	for _, k := range keys {
		all = errors.Join(all, s.heal(ctx, k))
	}
	return all
}

func (s *Sieve) heal(ctx context.Context, key string) error {
	r, ok := s.kept(key)
	if signed.Blocks(key) {
		return s.clear(ctx, key)
	}
	if !ok || !signed.Has(r.Value) {
		s.good(key) // nothing can be put back
		return nil
	}
	res, _, err := s.KV.Get(ctx, records.Read{Key: key})
	if err != nil {
		return err
	}
	cond := records.Condition{Key: key}
	b := &batch{Sieve: s, ctx: ctx, accepted: map[string][]byte{}}
	if len(res[0]) > 0 {
		p := res[0][0]
		if b.judge(p).why == nil {
			return nil
		}
		cond.Revision = p.Revision
	} else if !signed.Stays(key) || b.purged(key) {
		s.good(key)
		return nil
	}
	ok, _, err = s.KV.Commit(ctx, []records.Condition{cond}, []records.Write{{Key: key, Value: r.Value}})
	if ok && err == nil {
		s.good(key)
	}
	return err
}

// clear takes away a notice that does not count.
func (s *Sieve) clear(ctx context.Context, key string) error {
	res, _, err := s.KV.Get(ctx, records.Read{Key: key})
	if err != nil {
		return err
	}
	b := &batch{Sieve: s, ctx: ctx, accepted: map[string][]byte{}}
	if len(res[0]) == 0 || b.judge(res[0][0]).why == nil {
		s.good(key)
		return nil
	}
	_, _, err = s.KV.Commit(ctx, []records.Condition{{Key: key, Revision: res[0][0].Revision}}, []records.Write{{Key: key, Delete: true}})
	return err
}
