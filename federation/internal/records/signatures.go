// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"maps"
	"slices"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/internal/about"
	"github.com/weir-storage/weir/federation/signed"
)

// Unsigned implements federation.Signatures.
func (r *Registry) Unsigned(ctx context.Context) (out []string, err error) {
	all, _, err := r.everything(ctx)
	if err != nil {
		return nil, err
	}
	lacks := func(_ string, value []byte, _ func(string) []byte) bool { return !signed.Settled(value) }
	if s, ok := r.kv.KV.(sealing); ok {
		lacks = s.Lacks
	}
	look := func(k string) []byte {
		if kind := kindOf(k); kind == kindName || kind == kindGateway { // they are not signed
			return nil
		}
		return all[k].signed()
	}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if lasts(k) && lacks(k, all[k].signed(), look) {
			out = append(out, k)
		}
	}
	return out, nil
}

// lasts reports whether a record is signed, and stays until somebody changes it.
func lasts(k string) bool {
	return signed.Covers(k) && (about.Archived(k) && kindOf(k) != kindCanary || kindOf(k) == federation.KindLost)
}

// signed is the value as it is, also of one that does not count.
func (p Pair) signed() []byte {
	if p.Err != nil {
		return p.Raw
	}
	return p.Value
}

// Endorse implements federation.Signatures.
func (r *Registry) Endorse(ctx context.Context, k string) error {
	s, ok := r.kv.KV.(sealing)
	if !ok {
		return &federation.Error{Op: "endorse", Kind: string(kindOf(k)), Name: k, Err: federation.ErrInvalid,
			Detail: "this process has no certificate to sign with"}
	}
	res, _, err := r.kv.KV.Get(ctx, Read{Key: k})
	if err != nil {
		return wrap("endorse", string(kindOf(k)), k, err)
	}
	if len(res[0]) == 0 {
		return nil
	}
	value, err := s.Endorsed(k, res[0][0].signed())
	if err != nil {
		return wrap("endorse", string(kindOf(k)), k, err)
	}
	_, err = r.commit(ctx, "endorse", string(kindOf(k)), k, []Condition{{Key: k, Revision: res[0][0].Revision}},
		Write{Key: k, Value: value})
	return err
}
