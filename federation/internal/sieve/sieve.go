// SPDX-License-Identifier: Apache-2.0

// Package sieve stands between a registry's records and where they are kept. It signs what is
// written, and holds back what does not count (package signed).
package sieve

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/internal/records"
	"github.com/weir-storage/weir/federation/signed"
)

// Sieve is a records.KV over another. Its methods may be called from many goroutines.
type Sieve struct {
	records.KV
	seal  *signed.Seal
	guard *federation.Guard // nil: nothing is kept to compare with, or to put back

	asked atomic.Bool // the charter was read

	mu     sync.Mutex
	forged map[string]mark // what does not count, by key
	names  *names          // of what counts; nil: not read yet
	again  time.Time       // when something was last read again because it did not count
}

// mark is what the registry has of a key that does not count.
type mark struct {
	at   federation.Revision // 0: the key is gone
	heal bool                // it is to be put back, or taken away
}

// New wraps kv. The archive is that of guard, which may be nil, and may have none.
func New(kv records.KV, seal *signed.Seal, guard *federation.Guard) *Sieve {
	return &Sieve{KV: kv, seal: seal, guard: guard, forged: map[string]mark{}}
}

func (s *Sieve) archives() bool { return s.guard != nil && s.guard.Archive() != nil }

// refused reports whether the registry went back: then what it has is older than what is known, and
// nobody forged it.
func (s *Sieve) refused() bool { return s.guard != nil && s.guard.Err() != nil }

// archived is the archive's record of a key; no key: there is none.
func (s *Sieve) archived(key string) (federation.Record, error) {
	if !s.archives() {
		return federation.Record{}, nil
	}
	r, _, err := s.guard.Archive().Get(key)
	return r, err
}

// first reports whether the archive has not listed everything yet.
func (s *Sieve) first() bool {
	r, err := s.archived(federation.WholeArchive)
	return err == nil && r.Key == ""
}

// charter takes the charter that the registry has, once: who signs what follows from it.
func (s *Sieve) charter(ctx context.Context) error {
	if s.asked.Load() {
		return nil
	}
	if err := s.rereadCharter(ctx); err != nil {
		return err
	}
	s.asked.Store(true)
	return nil
}

func (s *Sieve) rereadCharter(ctx context.Context) error {
	res, _, err := s.KV.Get(ctx, records.Read{Key: string(federation.KindCharter)})
	if err == nil && len(res[0]) > 0 {
		s.seal.Adopt(res[0][0].Value)
	}
	return err
}

// batch is what came at once.
type batch struct {
	*Sieve
	ctx      context.Context
	accepted map[string][]byte // of this batch; nil: deleted
	whole    bool              // it has everything there is
	first    bool              // nothing was known before
	reread   bool              // what it is judged by was read again
	err      error             // of the archive: nothing can be said
}

func (s *Sieve) batch(ctx context.Context, whole bool) *batch {
	return &batch{Sieve: s, ctx: ctx, accepted: map[string][]byte{}, whole: whole, first: s.archives() && s.first()}
}

// known is what counts of a key so far.
func (b *batch) known(key string) (is signed.Known, r federation.Record) {
	is.First = b.first
	r, err := b.archived(key)
	if err != nil {
		b.err = errors.Join(b.err, err)
	}
	if v, ok := b.accepted[key]; ok {
		if is.Value = v; v == nil { // it was deleted in this batch, or there was none
			is.Grave = r.Value
		}
		return is, federation.Record{Key: key, Value: v}
	}
	if r.Deleted {
		is.Grave, r = r.Value, federation.Record{}
	} else {
		is.Value = r.Value
	}
	return is, r
}

// look is what counts of another key.
func (b *batch) look(key string) []byte {
	if kind := signed.KindOf(key); kind == "gateway" || kind == "name" {
		b.mu.Lock()
		defer b.mu.Unlock()
		if at := b.index().known(key); at != "" {
			return []byte(at)
		}
		return nil
	}
	is, _ := b.known(key)
	return is.Value
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
		return 6
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
	case federation.KindControl:
		return 4
	}
	return 5
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
		case p.Hidden != nil:
			out[i] = b.hidden(p)
		case signed.KindOf(p.Key) == federation.KindCharter && !p.Deleted:
			b.seal.Adopt(p.Value)
		case !signed.Covers(p.Key), lazily && signed.KindOf(p.Key) == federation.KindObserved:
		case p.Deleted:
			out[i] = b.deleted(p)
		default:
			out[i] = b.judge(p)
		}
	}
	// A gateway may have moved from a site that was looked at later.
	for _, i := range order {
		if b.whole && out[i].why != nil && signed.KindOf(pairs[i].Key) == federation.KindSite {
			delete(b.accepted, pairs[i].Key)
			out[i] = b.judge(pairs[i])
		}
	}
	return out
}

// fate is what becomes of a pair; zero: it counts.
type fate struct {
	why  error
	kept *federation.Record // what goes on in its place; nil: nothing is known
}

// rereadEvery bounds how often what does not count makes this process read something again.
const rereadEvery = 2 * time.Second

// readAgain reads what a pair is judged by, which may have changed since it was archived.
func (b *batch) readAgain(p records.Pair) bool {
	b.mu.Lock()
	due := !b.reread && b.seal.Now().Sub(b.again).Abs() >= rereadEvery
	if due {
		b.again = b.seal.Now()
	}
	b.mu.Unlock()
	if !due {
		return false
	}
	b.reread = true
	if err := b.rereadCharter(b.ctx); err != nil {
		return false
	}
	var reads []records.Read
	for _, k := range signed.About(p.Key, p.Value) {
		if _, there := b.accepted[k]; !there && k != p.Key && !b.whole {
			reads = append(reads, records.Read{Key: k})
		}
	}
	if len(reads) == 0 {
		return true
	}
	res, _, err := b.KV.Get(b.ctx, reads...)
	if err != nil {
		return false
	}
	more := slices.Concat(res...)
	slices.SortStableFunc(more, func(x, y records.Pair) int { return rank(x) - rank(y) })
	for _, q := range more {
		b.judge(q)
	}
	return true
}

func (b *batch) judge(p records.Pair) fate {
	is, r := b.known(p.Key)
	// Older than what is archived: the registry went back, which others tell.
	older := r.Revision > 0 && p.Revision+b.offset() < r.Revision && (!signed.Has(is.Value) || b.seal.Older(p.Key, p.Value, is.Value) ||
		bytes.Equal(p.Value, is.Value))
	if b.refused() || older {
		if err := b.seal.Check(p.Key, p.Value, signed.Known{First: true}, b.lookup()); signed.IsForgery(err) {
			return fate{why: err}
		}
		b.accepted[p.Key] = p.Value
		return fate{}
	}
	err := b.seal.Check(p.Key, p.Value, is, b.lookup())
	if err != nil && b.readAgain(p) {
		err = b.seal.Check(p.Key, p.Value, is, b.lookup())
	}
	if err == nil {
		b.accept(p.Key, p.Value)
		return fate{}
	}
	b.bad(p.Key, mark{p.Revision, true}, err)
	b.accepted[p.Key] = is.Value
	if is.Value == nil {
		return fate{why: err}
	}
	return fate{why: err, kept: &r}
}

var errHidden = errors.New("the registry does not show it, and it concerns this organization")

// hidden judges a record that is not shown. What concerns this organization is, so that it is then
// as if somebody had changed it past the gatekeepers (signed-9).
func (b *batch) hidden(p records.Pair) fate {
	is, r := b.known(p.Key)
	_, volume, _ := strings.Cut(p.Key, "/")
	if signed.KindOf(p.Key) == federation.KindPurged && !b.seal.Concerns(volume, b.look) {
		b.accepted[p.Key] = p.Value // what was known of the volume once is gone
		return fate{}
	}
	if !signed.Stays(p.Key) || is.Value == nil || b.refused() || !b.seal.Concerns(volume, b.look) {
		return fate{}
	}
	b.bad(p.Key, mark{p.Revision, true}, errHidden)
	return fate{why: errHidden, kept: &r}
}

func (s *Sieve) offset() federation.Revision {
	if s.guard == nil {
		return 0
	}
	return s.guard.Ask().Offset
}

// accept notes what counts of a key.
func (b *batch) accept(key string, is []byte) {
	b.accepted[key] = is
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.forged, key)
	if k := signed.KindOf(key); k == federation.KindSite || k == federation.KindVolume {
		b.index().note(key, is)
	}
}

var errGone = errors.New("it was deleted, and its volume was not purged")

// deleted judges that a record is gone.
func (b *batch) deleted(p records.Pair) fate {
	is, r := b.known(p.Key)
	if signed.Stays(p.Key) && !b.seal.Since().IsZero() && !b.refused() && is.Value != nil && !b.purged(p.Key) {
		b.bad(p.Key, mark{0, true}, errGone)
		b.accepted[p.Key] = is.Value
		return fate{why: errGone, kept: &r}
	}
	b.accept(p.Key, nil)
	return fate{}
}

// purged reports whether a key's volume was purged, as far as that counts.
func (b *batch) purged(key string) bool {
	k := signed.PurgeOf(key)
	if b.look(k) != nil {
		return true
	}
	if _, seen := b.accepted[k]; seen || b.whole {
		return false
	}
	res, _, err := b.KV.Get(b.ctx, records.Read{Key: k})
	if err == nil && len(res[0]) > 0 && res[0][0].Hidden != nil {
		b.hidden(res[0][0])
		return b.look(k) != nil
	}
	return err == nil && len(res[0]) > 0 && b.judge(res[0][0]).why == nil
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
	if err := s.charter(ctx); err != nil {
		return nil, federation.Head{}, err
	}
	res, h, err := s.KV.Get(ctx, reads...)
	if err != nil {
		return res, h, err
	}
	whole := slices.ContainsFunc(reads, func(r records.Read) bool { return r.Prefix && r.Key == "" })
	b := s.batch(ctx, whole)
	if whole {
		s.renamed(slices.Concat(res...))
	}
	for i, fates := range b.all(res, whole) {
		kept := res[i][:0:0]
		for j, f := range fates {
			p := res[i][j]
			if f.why != nil {
				p = s.instead(p, f)
			}
			// Who has an archive knows that there was nothing.
			if p.Err == nil || !reads[i].Prefix || !b.archives() || b.first || b.refused() {
				kept = append(kept, p)
			}
		}
		if res[i], err = b.missing(reads[i], kept); err != nil {
			return nil, h, err
		}
	}
	if b.err != nil {
		return nil, h, unreadable(b.err)
	}
	return res, h, nil
}

func unreadable(err error) error {
	return &federation.Error{Op: "check", Kind: "registry", Err: federation.ErrUnavailable,
		Detail: "this gateway's archive of it: " + err.Error()}
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
	if f.kept == nil || f.kept.Revision == 0 {
		p.Err, p.Raw, p.Value = f.why, p.Value, nil // it says nothing, but is in the way
		return p
	}
	p = s.pair(*f.kept)
	p.Withheld = errors.Is(f.why, errHidden)
	return p
}

// pair is an archived record as the registry had it.
func (s *Sieve) pair(r federation.Record) records.Pair {
	return records.Pair{Key: r.Key, Value: r.Value, Revision: r.Revision - s.offset()}
}

// missing adds records that the registry lacks, although nobody purged their volumes.
func (b *batch) missing(r records.Read, pairs []records.Pair) ([]records.Pair, error) {
	if !b.archives() || b.seal.Since().IsZero() || r.Key != "" && !signed.Stays(r.Key) || b.refused() {
		return pairs, nil
	}
	var kept []federation.Record
	if r.Prefix {
		var err error
		if kept, err = b.guard.Archive().List(r.Key); err != nil {
			return nil, unreadable(err)
		}
	} else if len(pairs) == 0 {
		if _, one := b.known(r.Key); one.Key != "" {
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
		b := s.batch(ctx, false)
		out := make([]records.Pair, 0, len(pairs))
		for len(pairs) > 0 { // one revision after the other
			n := 1
			for n < len(pairs) && pairs[n].Revision == pairs[0].Revision {
				n++
			}
			for i, f := range b.sift(pairs[:n], true) {
				switch {
				case f.why == nil:
					out = append(out, pairs[i])
				case f.kept == nil:
					out = append(out, s.instead(pairs[i], f))
				}
			}
			pairs = pairs[n:]
		}
		if b.err != nil {
			return unreadable(b.err)
		}
		return fn(h, out)
	})
}
