// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"slices"
	"strings"

	"github.com/weir-storage/weir/federation"
)

// PutAdmission implements federation.Admissions.
func (r *Registry) PutAdmission(ctx context.Context, a federation.Admission) error {
	if err := a.Validate(); err != nil {
		return err
	}
	_, err := r.put(ctx, "put", "admission", a.Volume, key(federation.KindAdmission, a.Site, a.Volume, a.Client), nil, a)
	return err
}

// DeleteAdmission implements federation.Admissions.
func (r *Registry) DeleteAdmission(ctx context.Context, volume, site, client string) error {
	a := federation.Admission{Volume: volume, Site: site, Client: client, Access: federation.ReadOnly}
	if err := a.Validate(); err != nil {
		return err
	}
	_, err := r.commit(ctx, "delete", "admission", volume, nil,
		Write{Key: key(federation.KindAdmission, site, volume, client), Delete: true})
	return err
}

// ListAdmissions implements federation.Admissions.
func (r *Registry) ListAdmissions(ctx context.Context, site string) ([]federation.Admission, error) {
	prefix := key(federation.KindAdmission, "")
	if site != "" {
		if err := federation.CheckLabel("site", site); err != nil {
			return nil, err
		}
		prefix = key(federation.KindAdmission, site, "")
	}
	return list[federation.Admission](ctx, r, "admission", prefix)
}

// list reads all records below a prefix.
func list[T any](ctx context.Context, r *Registry, kind, prefix string) ([]T, error) {
	res, _, err := r.get(ctx, "list", kind, "", Read{Key: prefix, Prefix: true})
	if err != nil {
		return nil, err
	}
	return decoded[T](kind, res[0])
}

func decoded[T any](kind string, pairs []Pair) ([]T, error) {
	out := make([]T, len(pairs))
	for i, p := range pairs {
		if err := p.decode(kind, strings.TrimPrefix(p.Key, kind+"/"), &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// GetKeyring implements federation.Keyrings.
func (r *Registry) GetKeyring(ctx context.Context, volume string) (federation.Keyring, federation.Revision, error) {
	var k federation.Keyring
	if err := checkNames("volume", volume); err != nil {
		return k, 0, err
	}
	rev, err := r.one(ctx, "get", "keyring", volume, key(federation.KindKeyring, volume), &k)
	if err == nil && rev == 0 {
		err = notFound("get", "keyring", volume)
	}
	return k, rev, err
}

// PutKeyring implements federation.Keyrings.
func (r *Registry) PutKeyring(ctx context.Context, prev federation.Revision, k federation.Keyring) (federation.Revision, error) {
	if err := federation.CheckKeyring(nil, k); err != nil {
		return 0, err
	}
	kk := key(federation.KindKeyring, k.Volume)
	var old federation.Keyring
	rev, err := r.one(ctx, "put", "keyring", k.Volume, kk, &old)
	if err != nil {
		return 0, err
	}
	if rev != prev {
		return 0, conflict("put", "keyring", k.Volume)
	}
	if rev != 0 {
		if err := federation.CheckKeyring(&old, k); err != nil {
			return 0, err
		}
	}
	conds := []Condition{{Key: kk, Revision: prev}}
	if prev == 0 {
		conds = append(conds, Condition{Key: key(federation.KindPurged, k.Volume)}) // a uuid is never used again
	}
	return r.put(ctx, "put", "keyring", k.Volume, kk, conds, k)
}

// PutObserved implements federation.Statuses.
func (r *Registry) PutObserved(ctx context.Context, o federation.Observed) error {
	if err := checkNames("observed", o.Volume, o.Gateway); err != nil {
		return err
	}
	_, err := r.put(ctx, "put", "observed", o.Volume, key(federation.KindObserved, o.Volume, o.Gateway), nil, o)
	return err
}

// ListObserved implements federation.Statuses.
func (r *Registry) ListObserved(ctx context.Context, volume string) ([]federation.Observed, error) {
	if err := checkNames("volume", volume); err != nil {
		return nil, err
	}
	res, _, err := r.get(ctx, "list", "observed", volume, Read{Key: key(federation.KindObserved, volume, ""), Prefix: true})
	if err != nil {
		return nil, err
	}
	return decoded[federation.Observed]("observed", slices.DeleteFunc(res[0], func(p Pair) bool { return p.Err != nil }))
}
