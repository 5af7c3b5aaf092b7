// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"strings"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
)

const kindPaper = string(federation.KindPaper)

func badPaper(op, name string, err error) error {
	return &federation.Error{Op: op, Kind: kindPaper, Name: name, Err: federation.ErrInvalid, Detail: err.Error()}
}

// PutPapers implements paper.Book.
func (r *Registry) PutPapers(ctx context.Context, all ...paper.At) error {
	var conds []Condition
	var writes []Write
	for _, p := range all {
		if err := p.Validate(); err != nil {
			return badPaper("put", p.Name(), err)
		}
		value, err := federation.Encode(p.Paper)
		if err != nil {
			return badPaper("put", p.Name(), err)
		}
		k := key(federation.KindPaper, p.Name())
		conds = append(conds, Condition{Key: k, Revision: federation.Revision(p.Revision)})
		writes = append(writes, Write{Key: k, Value: value})
	}
	if len(writes) == 0 {
		return nil
	}
	_, err := r.commit(ctx, "put", kindPaper, all[0].Name(), conds, writes...)
	return err
}

// DeletePaper implements paper.Book.
func (r *Registry) DeletePaper(ctx context.Context, name string, prev int64) error {
	k := key(federation.KindPaper, name)
	_, err := r.commit(ctx, "delete", kindPaper, name, []Condition{{Key: k, Revision: federation.Revision(prev)}},
		Write{Key: k, Delete: true})
	return err
}

// GetPaper implements paper.Book.
func (r *Registry) GetPaper(ctx context.Context, name string) (paper.At, error) {
	all, err := r.papers(ctx, "get", name, Read{Key: key(federation.KindPaper, name)})
	if err == nil && len(all) == 0 {
		err = notFound("get", kindPaper, name)
	}
	return append(all, paper.At{})[0], err
}

// ListPapers implements paper.Book.
func (r *Registry) ListPapers(ctx context.Context, prefix string) ([]paper.At, error) {
	return r.papers(ctx, "list", "", Read{Key: key(federation.KindPaper, prefix), Prefix: true})
}

func (r *Registry) papers(ctx context.Context, op, name string, read Read) ([]paper.At, error) {
	res, _, err := r.get(ctx, op, kindPaper, name, read)
	if err != nil {
		return nil, err
	}
	out := make([]paper.At, len(res[0]))
	for i, p := range res[0] {
		out[i].Revision, out[i].Value = int64(p.Revision), p.Value
		if err := p.decode(kindPaper, strings.TrimPrefix(p.Key, kindPaper+"/"), &out[i].Paper); err != nil {
			return nil, err
		}
	}
	return out, nil
}
