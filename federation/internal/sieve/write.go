// SPDX-License-Identifier: Apache-2.0

package sieve

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/internal/records"
	"github.com/weir-storage/weir/federation/signed"
)

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

// Lacks reports whether a value has no signature that would count, if a charter asked for one.
func (s *Sieve) Lacks(key string, value []byte, look func(key string) []byte) bool {
	return !signed.Settled(value) || s.seal.Strict(key, value, signed.Known{First: true}, look) != nil
}

// Counts returns why a value does not count that somebody says was at a key. Whether it is newer
// than what is known, others compare; but what began by force since then has a person's word.
func (s *Sieve) Counts(key string, value, known []byte, look func(key string) []byte) error {
	lookup := signed.Lookup(look)
	if look == nil {
		lookup = s.batch(context.Background(), false).lookup()
	}
	if err := s.seal.Check(key, value, signed.Known{First: true}, lookup); signed.IsForgery(err) {
		return err
	}
	if known == nil {
		return nil
	}
	if err := s.seal.Forced(key, value, known, lookup); signed.IsForgery(err) {
		return err
	}
	return nil
}

// Follows returns why a value does not count after another.
func (s *Sieve) Follows(key string, value, known []byte) error {
	return s.seal.Check(key, value, signed.Known{Value: known}, nil)
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
		if err := s.heal(ctx, k); err != nil {
			s.seal.Unhealed(k, err)
			all = errors.Join(all, err)
		}
	}
	return all
}

func (s *Sieve) heal(ctx context.Context, key string) error {
	res, _, err := s.KV.Get(ctx, records.Read{Key: key})
	if err != nil {
		return err
	}
	b := s.batch(ctx, false)
	is, _ := b.known(key)
	if b.err != nil {
		return b.err
	}
	cond, write := records.Condition{Key: key}, records.Write{Key: key, Value: is.Value}
	if len(res[0]) > 0 {
		p := res[0][0]
		cond.Revision = p.Revision
		if p.Hidden != nil { // what is there is not known here: the gatekeeper judges
			return s.unhide(ctx, cond, write)
		}
		why := s.seal.Check(key, p.Value, is, b.lookup())
		switch {
		case why == nil: // it does count, by what is known now: all is to be looked at again
			s.good(key)
			if s.guard != nil {
				s.guard.Turn()
			}
			return nil
		case is.Value != nil && signed.Has(is.Value) && s.seal.Replaceable(key, p.Value, is.Value, b.lookup()):
		case is.Value == nil && signed.IsForgery(why) && !b.first:
			write = records.Write{Key: key, Delete: true} // it never was
		default:
			return nil // something may have happened that is not known here
		}
	} else if is.Value == nil || !signed.Has(is.Value) || !signed.Stays(key) || b.purged(key) {
		s.good(key)
		return nil
	}
	ok, _, err := s.KV.Commit(ctx, []records.Condition{cond}, []records.Write{write})
	if ok && err == nil {
		s.good(key)
	}
	return err
}

// unhide puts back what is known where the registry shows nothing.
func (s *Sieve) unhide(ctx context.Context, cond records.Condition, write records.Write) error {
	if write.Value == nil || !signed.Has(write.Value) {
		return nil
	}
	_, _, err := s.KV.Commit(ctx, []records.Condition{cond}, []records.Write{write})
	return err
}

// good forgets a mark.
func (s *Sieve) good(key string) {
	s.mu.Lock()
	delete(s.forged, key)
	s.mu.Unlock()
}
