// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-storage/weir/federation"
)

// PurgeVolume implements federation.Purges. The records that make the volume what it is go in one
// transaction, and then what there may be any number of.
func (r *Registry) PurgeVolume(ctx context.Context, prev federation.Revision, p federation.Purge) error {
	if err := p.Validate(); err != nil {
		return err
	}
	v, rev, err := r.GetVolume(ctx, p.Volume)
	if err != nil {
		return err
	}
	if rev != prev {
		return conflict("purge", "volume", p.Volume)
	}
	if !v.Deleted {
		return &federation.Error{Op: "purge", Kind: "volume", Name: v.Name, Err: federation.ErrInvalid,
			Detail: fmt.Sprintf("volume %s is in use: delete it first", p.Volume)}
	}
	ctl, at, err := r.control(ctx, "purge", p.Volume)
	if err != nil {
		return err
	}
	p.Generation, p.Change = v.Generation, ctl.Change
	value, err := federation.Encode(p)
	if err != nil {
		return wrap("purge", "volume", v.Name, err)
	}
	k, c := key(federation.KindVolume, p.Volume), key(federation.KindControl, p.Volume)
	_, err = r.commit(ctx, "purge", "volume", v.Name, []Condition{{Key: k, Revision: prev}, {Key: c, Revision: at}},
		Write{Key: key(federation.KindPurged, p.Volume), Value: value},
		Write{Key: k, Delete: true}, Write{Key: namePrefix + v.Name, Delete: true}, Write{Key: c, Delete: true},
		Write{Key: key(federation.KindKeyring, p.Volume), Delete: true})
	if err == nil && r.guard != nil {
		err = r.guard.Forget(p.Volume)
	}
	if err == nil {
		err = r.dropUsers(ctx, p.Volume)
	}
	return err
}

// dropUsers deletes what others wrote about a volume that was purged.
func (r *Registry) dropUsers(ctx context.Context, volume string) error {
	users, err := r.usersOf(ctx, volume)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(users, batch) {
		if _, err := r.commit(ctx, "purge", "volume", volume, nil, part...); err != nil {
			return err
		}
	}
	return nil
}

// usersOf returns what deletes a volume's claims, admissions, attachments and observed states.
func (r *Registry) usersOf(ctx context.Context, volume string) (out []Write, err error) {
	res, _, err := r.get(ctx, "purge", "volume", volume, Read{Key: key(federation.KindClaim, volume, ""), Prefix: true},
		Read{Key: key(federation.KindObserved, volume, ""), Prefix: true},
		Read{Key: key(federation.KindAdmission, ""), Prefix: true}, Read{Key: key(federation.KindAttachment, ""), Prefix: true})
	if err != nil {
		return nil, err
	}
	for i, pairs := range res {
		for _, p := range pairs {
			if parts := strings.Split(p.Key, "/"); i < 2 || len(parts) > 2 && parts[2] == volume { // KIND/SITE/VOLUME/…
				out = append(out, Write{Key: p.Key, Delete: true})
			}
		}
	}
	return out, nil
}

// LeavePurge implements federation.Purges.
func (r *Registry) LeavePurge(ctx context.Context, volume, gateway string) error {
	if err := checkNames("volume", volume); err != nil {
		return err
	}
	for {
		var p federation.Purge
		k := key(federation.KindPurged, volume)
		rev, err := r.one(ctx, "get", "purge", volume, k, &p)
		if err != nil || rev == 0 || !slices.Contains(p.Pending, gateway) {
			return err
		}
		if p.Pending = slices.DeleteFunc(p.Pending, func(g string) bool { return g == gateway }); len(p.Pending) == 0 {
			if err := r.dropUsers(ctx, volume); err != nil { // also what came late
				return err
			}
		}
		if _, err = r.put(ctx, "leave", "purge", volume, k, []Condition{{Key: k, Revision: rev}}, p); !isConflict(err) {
			return err
		}
	}
}

// DeletePurge implements federation.Purges.
func (r *Registry) DeletePurge(ctx context.Context, volume string) error {
	if err := checkNames("volume", volume); err != nil {
		return err
	}
	_, err := r.commit(ctx, "delete", "purge", volume, nil, Write{Key: key(federation.KindPurged, volume), Delete: true})
	return err
}

// ListPurges implements federation.Purges.
func (r *Registry) ListPurges(ctx context.Context) ([]federation.Purge, error) {
	return list[federation.Purge](ctx, r, "purge", key(federation.KindPurged, ""))
}
