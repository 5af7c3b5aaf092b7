// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/weir-storage/weir/federation"
)

// Registry is a federation.Registry over a KV.
type Registry struct {
	kv    *keeper
	guard *federation.Guard
	pause func(context.Context) error
	said  sync.Mutex // held while this gateway's notice and testimonies are read and written
}

var _ federation.Registry = (*Registry)(nil)

// New returns a registry that owns kv. Guard may be nil: then a registry that went back is not
// noticed. A watch calls pause before it tries an unavailable registry again; it returns early,
// with ctx's error, when ctx ends.
func New(kv KV, guard *federation.Guard, pause func(ctx context.Context) error) *Registry {
	return &Registry{kv: &keeper{KV: kv, guard: guard}, guard: guard, pause: pause}
}

// Close implements federation.Registry.
func (r *Registry) Close() error { return r.kv.Close() }

// Head implements federation.Watcher.
func (r *Registry) Head(ctx context.Context) (federation.Head, error) {
	_, h, err := r.get(ctx, "read", "head", "", Read{Key: "head"})
	return h, err
}

// get reads.
func (r *Registry) get(ctx context.Context, op, kind, name string, reads ...Read) ([][]Pair, federation.Head, error) {
	res, h, err := r.kv.Get(ctx, reads...)
	if err != nil {
		return nil, h, wrap(op, kind, name, err)
	}
	for i, pairs := range res { // only that a name is taken says something
		res[i] = slices.DeleteFunc(pairs, func(p Pair) bool { return p.Hidden != nil && kindOf(p.Key) != kindName })
	}
	return res, h, nil
}

// one reads a single record into rec and returns its revision, or 0 when there is none.
func (r *Registry) one(ctx context.Context, op, kind, name, key string, rec any) (federation.Revision, error) {
	res, _, err := r.get(ctx, op, kind, name, Read{Key: key})
	if err != nil || len(res[0]) == 0 {
		return 0, err
	}
	return res[0][0].Revision, res[0][0].decode(kind, name, rec)
}

// commit turns a failed condition into ErrConflict.
func (r *Registry) commit(ctx context.Context, op, kind, name string, conds []Condition, writes ...Write) (federation.Revision, error) {
	ok, h, err := r.kv.Commit(ctx, conds, writes)
	if err != nil {
		return 0, wrap(op, kind, name, err)
	}
	if !ok {
		return 0, conflict(op, kind, name)
	}
	return h.Revision, nil
}

// put encodes and commits one record.
func (r *Registry) put(ctx context.Context, op, kind, name, key string, conds []Condition, rec any) (federation.Revision, error) {
	value, err := federation.Encode(rec)
	if err != nil {
		return 0, &federation.Error{Op: op, Kind: kind, Name: name, Err: federation.ErrInvalid, Detail: err.Error()}
	}
	return r.commit(ctx, op, kind, name, conds, Write{Key: key, Value: value})
}

func wrap(op, kind, name string, err error) error {
	return &federation.Error{Op: op, Kind: kind, Name: name, Err: err}
}

func conflict(op, kind, name string) error {
	return &federation.Error{Op: op, Kind: kind, Name: name, Err: federation.ErrConflict,
		Detail: "nothing was written; read the record again and decide anew"}
}

func notFound(op, kind, name string) error {
	return &federation.Error{Op: op, Kind: kind, Name: name, Err: federation.ErrNotFound,
		Detail: fmt.Sprintf("the registry has no such %s: check the spelling, or create it first", kind)}
}

func key(kind federation.Kind, parts ...string) string {
	return string(kind) + "/" + strings.Join(parts, "/")
}

func checkNames(kind string, names ...string) error {
	for _, n := range names {
		if err := federation.CheckName(kind, n); err != nil {
			return err
		}
	}
	return nil
}
