// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/federation/view"
)

// sourceOf returns the source that a GeoVolume's content is to have: the volume that a name of its
// namespace stands for now. What a content has stays.
func (r *geoVolumes) sourceOf(ctx context.Context, g *geoVolume) (*v1alpha1.ContentSource, error) {
	s := g.Spec.Source
	if g.content != nil {
		return g.content.Spec.Source, nil
	}
	if s == nil || g.seen != nil { // the record has it
		return nil, nil
	}
	waits := func(format string, a ...any) error {
		return outcome.Waiting(v1alpha1.ReasonNotFound, fmt.Sprintf(format, a...), outcome.Later)
	}
	if s.Snapshot != "" {
		var of v1alpha1.GeoVolumeSnapshot
		err := r.Get(ctx, types.NamespacedName{Namespace: g.Namespace, Name: s.Snapshot}, &of)
		switch {
		case apierrors.IsNotFound(err):
			return nil, waits("spec.source.snapshot: there is no GeoVolumeSnapshot %s in this namespace: make it, or make another "+
				"GeoVolume", s.Snapshot)
		case err != nil:
			return nil, err
		case !of.DeletionTimestamp.IsZero():
			return nil, waits("spec.source.snapshot: GeoVolumeSnapshot %s is being deleted", s.Snapshot)
		case of.Status.Volume == "" || of.Status.Time == nil:
			return nil, waits("spec.source.snapshot: GeoVolumeSnapshot %s is not taken yet: its status says why", s.Snapshot)
		}
		return &v1alpha1.ContentSource{Volume: of.Status.Volume, Snapshot: of.Status.Snapshot}, nil
	}
	var of v1alpha1.GeoVolume
	err := r.Get(ctx, types.NamespacedName{Namespace: g.Namespace, Name: s.Volume}, &of)
	switch {
	case apierrors.IsNotFound(err):
		return nil, waits("spec.source.volume: there is no GeoVolume %s in this namespace: make it, or make another GeoVolume", s.Volume)
	case err != nil:
		return nil, err
	case of.Status.Volume == "":
		return nil, waits("spec.source.volume: GeoVolume %s has no volume yet: its status says why", s.Volume)
	}
	return &v1alpha1.ContentSource{Volume: of.Status.Volume}, nil
}

// source returns what the volume's record is to say of its source, or what that waits for (ADR 53).
func (r *contents) source(ctx context.Context, c *content, size federation.Bytes) (*snapshots.Source, error) {
	s := c.Spec.Source
	if s == nil {
		return nil, nil
	}
	of, err := r.parent(s.Volume)
	if err != nil {
		return nil, err
	}
	name := s.Snapshot
	if name == "" {
		name = snapshots.CloneName(c.Name)
	}
	told := reportedSnapshots(of)
	x, there := told.Of(name)
	w, asked := snapshots.Find(of.Record.Snapshots, name)
	waits := func(format string, a ...any) error {
		return outcome.Waiting(v1alpha1.ReasonCreating, fmt.Sprintf(format, a...), outcome.Later)
	}
	switch {
	case told == nil:
		return nil, waits("the home of volume %s has not told yet which snapshots there are", of.Record.Name)
	case asked && w.Drop:
		return nil, outcome.Stopped(v1alpha1.ReasonNotFound, fmt.Sprintf("snapshot %s of volume %s is being dropped: name another one",
			name, of.Record.Name))
	case s.Snapshot == "" && !asked:
		return nil, r.askSnapshot(ctx, of, snapshots.Wish{Name: name, UID: c.Name})
	case there && x.State == snapshots.StateTaken && x.Snap == 0:
		return nil, outcome.Stopped(v1alpha1.ReasonInvalid, fmt.Sprintf("the home of volume %s is of a release that makes no volumes "+
			"of snapshots: upgrade the gateways", of.Record.Name))
	case there && x.State == snapshots.StateTaken:
	case s.Snapshot == "":
		return nil, waits("the home of volume %s takes a snapshot of it: %s", of.Record.Name, x.Message)
	default:
		return nil, waits("volume %s has no snapshot %s, as far as its home has told", of.Record.Name, name)
	}
	if held := federation.Bytes(x.Bytes); size < held {
		return nil, outcome.Stopped(v1alpha1.ReasonInvalid, fmt.Sprintf("spec.size is %s, and the snapshot has %s: write that or more",
			size, held))
	}
	return &snapshots.Source{Volume: s.Volume, Snapshot: name, Snap: x.Snap, Time: x.Time.UTC(), Bytes: x.Bytes, Inodes: x.Inodes}, nil
}

// parent returns the volume of which another one is to be made, or why it cannot be.
func (r *contents) parent(uuid string) (*view.Volume, error) {
	of := r.mirror.Volume(uuid)
	switch {
	case of != nil && of.Problem != nil:
		return nil, of.Problem
	case of == nil || of.Record == nil:
		return nil, outcome.Stopped(v1alpha1.ReasonNotFound, fmt.Sprintf("spec.source: the registry has no volume %s, or does not show it "+
			"to this organization", uuid))
	case !r.self.Owns(*of.Record):
		return nil, outcome.Stopped(v1alpha1.ReasonNotOwner, fmt.Sprintf("spec.source: volume %s belongs to %s, site %q: only its owner "+
			"makes volumes of it", of.Record.Name, of.Record.Owner, of.Record.OwnerSite))
	case of.Record.Closing || of.Record.Deleted:
		return nil, outcome.Stopped(v1alpha1.ReasonDeleted, fmt.Sprintf("spec.source: volume %s was deleted, or is being deleted",
			of.Record.Name))
	}
	return of, nil
}

func reportedSnapshots(v *view.Volume) *snapshots.Report {
	if o := v.ObservedByHome(); o != nil {
		return o.Snapshots
	}
	return nil
}

// askSnapshot writes a wish into the record of a volume of which another one is made.
func (r *contents) askSnapshot(ctx context.Context, of *view.Volume, w snapshots.Wish) error {
	next := *of.Record
	next.Snapshots = snapshots.Put(next.Snapshots, w, reportedSnapshots(of))
	if len(next.Snapshots) > snapshots.MaxWishes {
		return outcome.Stopped(v1alpha1.ReasonExhausted, fmt.Sprintf("%d snapshots of volume %s are asked for, which is the most: "+
			"delete GeoVolumeSnapshots that nobody needs", snapshots.MaxWishes, next.Name))
	}
	if err := r.setWishes(ctx, of, next); err != nil {
		return err
	}
	return outcome.Waiting(v1alpha1.ReasonCreating, fmt.Sprintf("the home of volume %s is asked for a snapshot of it", next.Name),
		outcome.Later)
}

func (r *contents) setWishes(ctx context.Context, of *view.Volume, next federation.Volume) error {
	rev, err := r.Registry.UpdateVolume(ctx, of.Revision, next)
	if err == nil {
		r.mirror.Note(next, rev)
	}
	return err
}

// filled writes into the record that the volume has all of its source, when its home has said so,
// and has the snapshot dropped that was taken for it.
func (r *contents) filled(ctx context.Context, c *content) error {
	v := c.record()
	if v.Source == nil {
		return nil
	}
	if told := reportedSnapshots(c.seen); !v.Source.Done && told != nil && told.Filled != nil && told.Filled.Done {
		next, source := *v, *v.Source
		source.Done = true
		next.Source = &source
		rev, err := r.Registry.UpdateVolume(ctx, c.seen.Revision, next)
		if err != nil {
			return err
		}
		r.mirror.Note(next, rev)
		c.seen = r.mirror.Volume(c.Name)
		v = c.record()
	}
	if v.Source.Done {
		return r.unclone(ctx, c.Name, v.Source.Volume)
	}
	return nil
}

// unclone has the snapshot dropped that was taken for a volume.
func (r *contents) unclone(ctx context.Context, uuid, parent string) error {
	of := r.mirror.Volume(parent)
	if of == nil || of.Record == nil || of.Record.Deleted || !r.self.Owns(*of.Record) {
		return nil
	}
	w, asked := snapshots.Find(of.Record.Snapshots, snapshots.CloneName(uuid))
	if !asked || w.UID != uuid || w.Drop {
		return nil
	}
	w.Drop = true
	next := *of.Record
	next.Snapshots = snapshots.Put(next.Snapshots, w, reportedSnapshots(of))
	return r.setWishes(ctx, of, next)
}

// uncloned takes wishes out of a volume's record that were made for other volumes: their snapshots
// are dropped.
func (r *contents) uncloned(ctx context.Context, c *content) error {
	told := reportedSnapshots(c.seen)
	for _, w := range c.record().Snapshots {
		if w.Name == snapshots.CloneName(w.UID) && told.Dropped(w) {
			next := *c.record()
			next.Snapshots = snapshots.Without(next.Snapshots, w.Name, told)
			err := r.setWishes(ctx, c.seen, next)
			c.seen = r.mirror.Volume(c.Name)
			return err // there is news if there are more
		}
	}
	return nil
}

// sparesSources returns an error while other volumes are being made of a volume.
func (o *operator) sparesSources(v federation.Volume) error {
	for _, n := range o.mirror.Making(v.UUID) {
		return &outcome.Stop{Verdict: &plan.Verdict{Reason: v1alpha1.ReasonInUse, Message: fmt.Sprintf("volume %s is being made of volume "+
			"%s, which is deleted when that has all; or delete volume %s first", n.Name, v.Name, n.Name)}}
	}
	return nil
}
