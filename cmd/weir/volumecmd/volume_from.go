// SPDX-License-Identifier: Apache-2.0

package volumecmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/federation/spec"
)

// fillWait is how long create waits until a volume has all that it is made of, unless --wait says
// another time.
const fillWait = 24 * time.Hour

// origin is what a volume is made of: a snapshot of another volume, or without a name the volume
// itself, of which a snapshot is taken then.
type origin struct {
	volume   federation.Volume
	snapshot string
}

// is reports whether a volume was made of this.
func (o origin) is(v federation.Volume) bool {
	s := v.Source
	return s != nil && s.Volume == o.volume.UUID &&
		(s.Snapshot == o.snapshot || o.snapshot == "" && s.Snapshot == snapshots.CloneName(v.UUID))
}

// originOf finds what --from names.
func originOf(ctx context.Context, cl *access.Client, from string) (origin, error) {
	name, snapshot, named := strings.Cut(from, "@")
	if name == "" || named && snapshot == "" || strings.Contains(snapshot, "@") {
		return origin{}, cli.Usage("--from %q: write VOLUME, or VOLUME@SNAPSHOT with a name that `weir volume snapshot list` shows", from)
	}
	v, err := cl.Living(ctx, name)
	switch {
	case err != nil:
	case v.Owner != cl.Self.Organization:
		err = fmt.Errorf("volume %s belongs to %s, and your certificate is of %s: only its owner makes volumes of it", v.Name, v.Owner,
			cl.Self.Organization)
	case v.OwnerSite != "" || v.OwnerCluster != "":
		err = fmt.Errorf("volume %s belongs to the cluster of site %s: make a GeoVolume with spec.source there", v.Name, v.OwnerSite)
	}
	return origin{v, snapshot}, err
}

// createFrom makes a volume of what --from names, and waits until it has all of that (ADR 53). A
// volume that an interrupted command made is not made again.
func createFrom(ctx context.Context, sh *cli.Shell, cl *access.Client, m spec.VolumeManifest, from string, wait time.Duration) error {
	o, err := originOf(ctx, cl, from)
	if err != nil {
		return err
	}
	v, _, err := cl.Registry.FindVolume(ctx, m.Metadata.Name)
	switch {
	case errors.Is(err, federation.ErrNotFound):
		if v, err = o.make(ctx, sh, cl, m); err == nil {
			err = created(ctx, sh, cl, v, wait)
		}
	case err == nil && (v.Deleted || !o.is(v)):
		err = nameTaken(v)
	}
	if err != nil {
		return err
	}
	if wait <= 0 {
		sh.Tell("The same command waits until volume %s has all of %s; nobody can use it until then.\n", v.Name, from)
		return nil
	}
	return seeThrough(ctx, sh, cl, v, from, wait)
}

// make makes the volume. If that fails, the snapshot that was taken for it is dropped.
func (o origin) make(ctx context.Context, sh *cli.Shell, cl *access.Client, m spec.VolumeManifest) (federation.Volume, error) {
	begins := func(uuid string) (*snapshots.Source, error) {
		s, err := o.source(ctx, cl, uuid)
		if err == nil && uint64(m.Spec.Size) < s.Bytes {
			err = fmt.Errorf("spec.size is %v, and the snapshot has %s: write that or more", m.Spec.Size, cli.Bytes(int64(s.Bytes)))
		}
		return s, err
	}
	o.tidy(ctx, sh, cl)
	v, err := create(ctx, cl, m, begins, sh.Now(), sh.Random)
	if err != nil && o.snapshot == "" && v.UUID != "" && !errors.Is(err, federation.ErrUnknown) {
		o.drop(context.WithoutCancel(ctx), sh, cl, v.UUID)
	}
	return v, err
}

// source returns what the record of the volume with a UUID is to say of its source.
func (o origin) source(ctx context.Context, cl *access.Client, uuid string) (*snapshots.Source, error) {
	if err := awaitReport(ctx, cl, o.volume.Name, snapshotWait); err != nil {
		return nil, err
	}
	name := o.snapshot
	if name == "" {
		name = snapshots.CloneName(uuid)
		if err := o.take(ctx, cl, name, uuid); err != nil {
			return nil, err
		}
	}
	v, err := cl.Living(ctx, o.volume.Name)
	if err != nil {
		return nil, err
	}
	told, err := reportedSnapshots(ctx, cl, v)
	if err != nil {
		return nil, err
	}
	x, there := told.Of(name)
	w, asked := snapshots.Find(v.Snapshots, name)
	switch {
	case asked && w.Drop:
		return nil, fmt.Errorf("snapshot %s of volume %s is being dropped: name another one", name, v.Name)
	case !there || x.State != snapshots.StateTaken:
		return nil, fmt.Errorf("volume %s has no snapshot %s: `weir volume snapshot list %[1]s` shows which there are", v.Name, name)
	case x.Snap == 0:
		return nil, fmt.Errorf("the home of volume %s is of a release that makes no volumes of snapshots: upgrade the gateways", v.Name)
	}
	return &snapshots.Source{Volume: v.UUID, Snapshot: name, Snap: x.Snap, Time: x.Time.UTC(), Bytes: x.Bytes, Inodes: x.Inodes}, nil
}

// take has a snapshot of the volume taken for the one with a UUID.
func (o origin) take(ctx context.Context, cl *access.Client, name, uuid string) error {
	v, w, err := editWishes(ctx, cl, o.volume.Name, func(v *federation.Volume, told *snapshots.Report) (snapshots.Wish, error) {
		w := snapshots.Wish{Name: name, UID: uuid}
		if _, asked := snapshots.Find(v.Snapshots, name); asked {
			return w, errAsked // an attempt whose outcome was not known
		}
		if v.Snapshots = snapshots.Put(v.Snapshots, w, told); len(v.Snapshots) > snapshots.MaxWishes {
			return w, fmt.Errorf("%d snapshots of volume %s are asked for, which is the most: drop some", snapshots.MaxWishes, v.Name)
		}
		return w, nil
	})
	if err != nil {
		return err
	}
	_, err = awaitSnapshot(ctx, cl, v, w, snapshotWait)
	return err
}

// drop has the snapshot dropped that was taken for the volume with a UUID. What remains to be done
// is told, and is no error.
func (o origin) drop(ctx context.Context, sh *cli.Shell, cl *access.Client, uuid string) {
	name := snapshots.CloneName(uuid)
	now, _, err := cl.Registry.GetVolume(ctx, o.volume.UUID)
	if _, asked := snapshots.Find(now.Snapshots, name); err == nil && !asked {
		return // an earlier call dropped it
	}
	v, w, err := askDrop(ctx, cl, sh.Random, o.volume.Name, name, false)
	if err == nil {
		_, err = awaitSnapshot(ctx, cl, v, w, snapshotWait)
	}
	if err == nil {
		err = forgetWish(ctx, cl, v, w)
	}
	if err != nil {
		sh.Tell("Snapshot %s, which was taken for this, is still there: %v\n`weir volume snapshot drop %s %[1]s` drops it.\n", name, err,
			o.volume.Name)
	}
}

// seeThrough waits until a volume has all that it is made of, writes that into its record, and has
// the snapshot dropped that was taken for it.
func seeThrough(ctx context.Context, sh *cli.Shell, cl *access.Client, v federation.Volume, from string, limit time.Duration) error {
	if v.Source.Unfinished() {
		if err := awaitFilled(ctx, sh, cl, v, limit); err != nil {
			return err
		}
		_, _, err := editWishes(ctx, cl, v.Name, func(v *federation.Volume, _ *snapshots.Report) (snapshots.Wish, error) {
			if !v.Source.Unfinished() {
				return snapshots.Wish{}, errAsked
			}
			s := *v.Source
			s.Done, v.Source = true, &s
			return snapshots.Wish{}, nil
		})
		if err != nil {
			return fmt.Errorf("volume %s has all of %s, and its record does not say so yet: %w; type the same command again", v.Name, from,
				err)
		}
	}
	dropClone(ctx, sh, cl, v)
	return sh.Say("volume %s has all of %s\n", v.Name, from)
}

// dropClone drops the snapshot that was taken for a volume, of which it is not needed any more.
func dropClone(ctx context.Context, sh *cli.Shell, cl *access.Client, v federation.Volume) {
	if v.Source == nil || v.OwnerCluster != "" || v.Source.Snapshot != snapshots.CloneName(v.UUID) {
		return
	}
	of, _, err := cl.Registry.GetVolume(ctx, v.Source.Volume)
	if err != nil || of.Deleted {
		return // the snapshot goes with the other volume, or is gone
	}
	origin{volume: of}.drop(ctx, sh, cl, v.UUID)
}

// awaitFilled waits until the home reports that a volume has all that it is made of, and tells how
// far it is. After limit its error says what it waits for.
func awaitFilled(ctx context.Context, sh *cli.Shell, cl *access.Client, v federation.Volume, limit time.Duration) error {
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	last := snapshots.Filled{}
	err := cl.Registry.Watch(wait, func(e federation.Event) error {
		if e.Observed == nil || e.Observed.Volume != v.UUID || e.Observed.Snapshots == nil || e.Observed.Snapshots.Filled == nil {
			return nil
		}
		told, err := reportedSnapshots(wait, cl, v)
		if err != nil || told.Filled == nil {
			return nil //nolint:nilerr // of a former home: the present one tells too
		}
		is := *told.Filled
		switch {
		case is.Done:
			return errSnapshotDone
		case is.Message != "" && is.Message != last.Message:
			sh.Tell("  it does not go on, and is tried again: %s\n", is.Message)
		case is.Bytes > last.Bytes:
			sh.Tell("  %s of %s\n", cli.Bytes(int64(is.Bytes)), cli.Bytes(int64(v.Source.Bytes)))
		}
		last = is
		return nil
	})
	switch {
	case errors.Is(err, errSnapshotDone):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	why := "its home goes on"
	if last.Message != "" {
		why = "its home tries again: " + last.Message
	}
	return fmt.Errorf("volume %s is made, and has %s of %s after %v: %s; the same command goes on waiting", v.Name,
		cli.Bytes(int64(last.Bytes)), cli.Bytes(int64(v.Source.Bytes)), limit, why)
}

// spared refuses to delete a volume while others are being made of it (fill-3).
func spared(ctx context.Context, cl *access.Client, v federation.Volume) error {
	child, err := making(ctx, cl, v)
	if err == nil && child != "" {
		err = fmt.Errorf("delete volume %s: volume %s is being made of it: wait until that has all, or delete that first", v.Name, child)
	}
	return err
}

// making returns the name of a volume that is being made of this one, if there is any.
func making(ctx context.Context, cl *access.Client, v federation.Volume) (string, error) {
	all, err := cl.Registry.ListVolumes(ctx)
	for _, x := range all {
		if n := x.Volume; n.Source.Unfinished() && n.Source.Volume == v.UUID && !n.Deleted && n.Owner == v.Owner {
			return n.Name, err
		}
	}
	return "", err
}

// abandoned is how long after a snapshot was taken for a volume nobody makes that volume any more:
// a command waits for the snapshot at most snapshotWait, and makes the volume then.
const abandoned = time.Hour

// tidy drops snapshots that were taken for volumes that never came to be: their commands were
// killed in between. What cannot be looked at stays, and no error is told.
func (o origin) tidy(ctx context.Context, sh *cli.Shell, cl *access.Client) {
	told, err := reportedSnapshots(ctx, cl, o.volume)
	if err != nil {
		return
	}
	for _, w := range o.volume.Snapshots {
		x, there := told.Of(w.Name)
		if w.Drop || w.Name != snapshots.CloneName(w.UID) || !there || x.State != snapshots.StateTaken ||
			sh.Now().Sub(x.Time) < abandoned {
			continue
		}
		if _, _, err := cl.Registry.GetVolume(ctx, w.UID); errors.Is(err, federation.ErrNotFound) {
			o.drop(ctx, sh, cl, w.UID)
		}
	}
}
