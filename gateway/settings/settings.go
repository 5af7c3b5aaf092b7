// SPDX-License-Identifier: Apache-2.0

// Package settings says what a volume's desired state means for each of the parts of its copy.
package settings

import (
	"slices"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/readcache"
	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/protocol"
)

// Policy returns the protocol's policy for a volume's desired state.
func Policy(v federation.Volume) protocol.Policy {
	p := protocol.Policy{Want: 1, Blind: v.Blind, Continue: v.Spec.Durability.WhenDegraded == federation.WhenDegradedContinue}
	p.Sites = append(slices.DeleteFunc(slices.Clone(v.Sites), v.IsBlind), v.Blind...)
	if v.Spec.Durability.Acknowledge == federation.AcknowledgeSites {
		p.Want = v.Spec.Durability.Sites
	}
	if len(p.Sites) > 0 {
		p.FirstHome = p.Sites[0]
	}
	return p
}

// PolicyOf is Policy in a federation of these sites. A steward may hand on to a copy that is to go,
// at a site of the owner's own organization.
func PolicyOf(v federation.Volume, sites []federation.Site) protocol.Policy {
	p := Policy(v)
	for _, s := range sites {
		if s.Organization == v.Owner && !slices.Contains(v.Sites, s.Name) {
			p.Heirs = append(p.Heirs, s.Name)
		}
	}
	return p
}

// Staleness is how old what the volume's readers are shown may be.
func Staleness(v federation.Volume) time.Duration {
	if v.Spec.Consistency.Mode != federation.ConsistencyBounded {
		return 0
	}
	return time.Duration(v.Spec.Consistency.MaxStaleness)
}

// Share is how much of the pool the volume's read cache may take.
func Share(v federation.Volume) readcache.Share {
	return readcache.Share{Limit: int64(v.Spec.Cache.Size), Reserve: int64(v.Spec.Cache.Reserve)}
}

// Tuning is how the volume's engine works.
func Tuning(v federation.Volume) engine.Tuning {
	c := v.Spec.Cache
	t := engine.Tuning{BlockSize: int(c.BlockSize), ReadAhead: engine.DefaultReadAhead, Memory: int64(c.Memory),
		Window: time.Duration(v.Spec.Snapshots.Window), Trash: time.Duration(v.Spec.Trash.Keep),
		NoSnapshotDir: v.Spec.Snapshots.Directory == snapshots.DirectoryNone}
	if c.ReadAhead != nil {
		t.ReadAhead = int64(*c.ReadAhead)
	}
	if c.Compression != federation.CompressionFast {
		t.Compression = segment.Compression(c.Compression)
	}
	return t
}

// Below is how the storage below the pool treats the volume.
func Below(v federation.Volume) cachepool.Tuning {
	c := v.Spec.Cache
	t := cachepool.Tuning{ARC: string(c.ARC), L2ARC: string(c.L2ARC), Log: string(c.Log)}
	if c.BlockSize > 0 { // smaller records would take much more room on a raidz than the pool counts
		t.RecordSize = int(max(c.BlockSize, 32<<10))
	}
	return t
}

// leastTails is the shortest maxLag with which the end of a log goes to stores in pieces: they are
// looked for every few seconds only.
const leastTails = 15 * time.Second

// TailsOf returns what tells Tails of a volume as it is when that is asked for.
func TailsOf(id string, record func(id string) (federation.Volume, bool), format func(id string) uint32) func() time.Duration {
	return func() time.Duration {
		v, _ := record(id) // of one that is gone nothing goes anywhere
		return Tails(v, format(id))
	}
}

// Tails returns in which time what is committed is to be in stores, if each copy puts the end of
// its log there in pieces (ADR 60); 0: they do not. All gateways that may have a copy know the
// format level. A blind copy puts no pieces into its store, and a store that is lent gets none.
func Tails(v federation.Volume, level uint32) time.Duration {
	lag := MaxLag(v).Time
	if lag < leastTails || len(v.Blind)+len(v.Stores) > 0 || level < engine.TailLevel {
		return 0
	}
	return lag
}

// MaxLag is how far a copy may trail.
func MaxLag(v federation.Volume) replica.MaxLag {
	return replica.MaxLag{Bytes: int64(v.Spec.Durability.MaxLag.Bytes), Time: time.Duration(v.Spec.Durability.MaxLag.Time)}
}
