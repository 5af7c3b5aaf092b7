// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"strings"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/internal/about"
)

const namePrefix = "name/"

// CreateVolume implements federation.Volumes.
func (r *Registry) CreateVolume(ctx context.Context, v federation.Volume, ring federation.Keyring) (federation.Revision, error) {
	if err := v.Validate(); err != nil {
		return 0, err
	}
	value, err := federation.Encode(v)
	if err != nil {
		return 0, wrap("create", "volume", v.Name, err)
	}
	k, n, kk := key(federation.KindVolume, v.UUID), namePrefix+v.Name, key(federation.KindKeyring, v.UUID)
	conds := []Condition{{Key: k}, {Key: n}, {Key: key(federation.KindPurged, v.UUID)}}
	writes := []Write{{Key: k, Value: value}, {Key: n, Value: []byte(v.UUID)}}
	if ring.Volume != "" {
		if err := checkRing(v, ring); err != nil {
			return 0, err
		}
		if value, err = federation.Encode(ring); err != nil {
			return 0, wrap("create", "volume", v.Name, err)
		}
		conds, writes = append(conds, Condition{Key: kk}), append(writes, Write{Key: kk, Value: value})
	}
	rev, err := r.commit(ctx, "create", "volume", v.Name, conds, writes...)
	if err == nil || !isConflict(err) {
		return rev, err
	}
	res, _, err := r.get(ctx, "create", "volume", v.Name, Read{Key: n}, Read{Key: k}, Read{Key: kk})
	if err != nil {
		return 0, err
	}
	if len(res[0]) == 0 && len(res[1]) == 0 && len(res[2]) > 0 && ring.Volume != "" {
		conds[len(conds)-1].Revision = res[2][0].Revision
		return r.commit(ctx, "create", "volume", v.Name, conds, writes...)
	}
	if len(res[0]) == 0 {
		return 0, conflict("create", "volume", v.Name)
	}
	owner := string(res[0][0].Value)
	if res[0][0].Hidden != nil {
		return 0, &federation.Error{Op: "create", Kind: "volume", Name: v.Name, Err: federation.ErrNameTaken,
			Detail: "it names a volume that does not concern this organization: choose another name"}
	}
	if owner == v.UUID {
		return 0, &federation.Error{Op: "create", Kind: "volume", Name: v.Name, Err: federation.ErrConflict,
			Detail: "volume " + v.UUID + " is already registered: read it instead"}
	}
	return 0, &federation.Error{Op: "create", Kind: "volume", Name: v.Name, Err: federation.ErrNameTaken,
		Detail: "it names volume " + owner + ": choose another name, or import that volume; a deleted one frees its name when it is purged"}
}

// checkRing checks that a keyring is that of a volume which is made.
func checkRing(v federation.Volume, ring federation.Keyring) error {
	if ring.Volume != v.UUID {
		return &federation.Error{Op: "create", Kind: "keyring", Name: ring.Volume, Err: federation.ErrInvalid,
			Detail: "it is another volume's than " + v.UUID + ": give the volume's own"}
	}
	return federation.CheckKeyring(nil, ring)
}

// GetVolume implements federation.Volumes.
func (r *Registry) GetVolume(ctx context.Context, uuid string) (federation.Volume, federation.Revision, error) {
	var v federation.Volume
	if err := checkNames("volume", uuid); err != nil {
		return v, 0, err
	}
	rev, err := r.one(ctx, "get", "volume", uuid, key(federation.KindVolume, uuid), &v)
	if err == nil && rev == 0 {
		err = notFound("get", "volume", uuid)
	}
	return v, rev, err
}

// FindVolume implements federation.Names.
func (r *Registry) FindVolume(ctx context.Context, name string) (federation.Volume, federation.Revision, error) {
	if err := federation.CheckVolumeName(name); err != nil {
		return federation.Volume{}, 0, err
	}
	res, _, err := r.get(ctx, "find", "volume", name, Read{Key: namePrefix + name})
	if err != nil {
		return federation.Volume{}, 0, err
	}
	if len(res[0]) == 0 {
		return federation.Volume{}, 0, notFound("find", "volume", name)
	}
	if res[0][0].Hidden != nil {
		return federation.Volume{}, 0, &federation.Error{Op: "find", Kind: "volume", Name: name, Err: federation.ErrAccess,
			Detail: "a volume has this name that does not concern this organization: ask its owner for a grant"}
	}
	v, rev, err := r.GetVolume(ctx, string(res[0][0].Value))
	if err == nil && v.Name != name { // the name is not signed, the record is
		err = &federation.Error{Op: "find", Kind: "volume", Name: name, Err: federation.ErrForged,
			Detail: "the name stands for volume " + v.UUID + ", which is called " + v.Name}
	}
	return v, rev, err
}

// UpdateVolume implements federation.Volumes.
func (r *Registry) UpdateVolume(ctx context.Context, prev federation.Revision, v federation.Volume) (federation.Revision, error) {
	old, rev, err := r.GetVolume(ctx, v.UUID)
	if err != nil {
		return 0, err
	}
	if rev != prev {
		return 0, conflict("update", "volume", v.Name)
	}
	if err := federation.CheckUpdate(old, v); err != nil {
		return 0, err
	}
	v.Former = about.Former(old, v) // also while nothing is concealed: that may begin
	k := key(federation.KindVolume, v.UUID)
	return r.put(ctx, "update", "volume", v.Name, k, []Condition{{Key: k, Revision: prev}}, v)
}

// ListVolumes implements federation.Volumes.
func (r *Registry) ListVolumes(ctx context.Context) ([]federation.VolumeAt, error) {
	prefix := key(federation.KindVolume, "")
	res, _, err := r.get(ctx, "list", "volumes", "", Read{Key: prefix, Prefix: true})
	if err != nil {
		return nil, err
	}
	out := make([]federation.VolumeAt, len(res[0]))
	for i, p := range res[0] {
		out[i].Revision = p.Revision
		if err := p.decode("volume", strings.TrimPrefix(p.Key, prefix), &out[i].Volume); err != nil {
			return nil, err
		}
	}
	return out, nil
}
