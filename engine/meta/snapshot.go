// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Format is the newest format level of metadata that this release knows. A volume without Versions
// has level 1.
//
//	1  no snapshots
//	2  snapshots, the history, contents of files that are not named by their inode
//	3  checkpoints, and the table of segments
//	4  a trash, and a count of what snapshots hold
//	5  checkpoints that are changes of earlier ones
//	6  packs
//	7  the end of the log is in stores in pieces: it says nothing of metadata
//	8  packs with blocks that are cut
//	10 packs with blocks that are sealed anew, and not cut
//	11 changes are held for a group's snapshots: it says nothing of metadata
//
// Level 9 is void: who knows 10 claims to know it.
const Format = 11

// The format levels from which a volume may have these.
const (
	SnapshotLevel   = 2
	CheckpointLevel = 3
	TrashLevel      = 4
	LayerLevel      = 5
	PackLevel       = 6
	TailLevel       = 7
	CutLevel        = 8
	ResealLevel     = 10
)

// NewerError reports a volume of a format level that this release does not know. Nothing is
// damaged.
type NewerError struct{ Level uint32 }

func (e *NewerError) Error() string {
	return fmt.Sprintf("the volume has format level %d, this release knows up to %d: upgrade this gateway", e.Level, Format)
}

// VersionsOf is what a volume's snapshots have in common.
type VersionsOf struct {
	Level   uint32    // format level
	Last    uint32    // generation of the newest snapshot that was ever taken; 0: none was
	Newest  uint32    // generation of the newest snapshot that is kept; 0: none is
	Number  uint64    // that one's number
	Changed uint64    // number of the record that last took or dropped a snapshot
	Time    time.Time // that of Last; none that is taken later has an earlier one
	Covered time.Time // since then the state of each second is kept; zero: it is not
	Idle    bool      // nothing had changed for a while when Last was taken
	Rolling uint32    // the volume is being made what it was in this snapshot; 0: it is not
	Dropped uint64    // number of the record that last dropped one; 0: the history was cleaned since
}

const flagIdle = 1

// VersionsKey is the key of a volume's VersionsOf.
func VersionsKey() []byte { return finish(key(Versions, 0)) }

// Encode returns the key and the value of v.
func (v VersionsOf) Encode() (key, value []byte) {
	key = VersionsKey()
	b := binary.BigEndian.AppendUint32(begin(65), v.Level)
	b = binary.BigEndian.AppendUint32(b, v.Last)
	b = binary.BigEndian.AppendUint32(b, v.Newest)
	b = binary.BigEndian.AppendUint64(b, v.Number)
	b = binary.BigEndian.AppendUint64(b, v.Changed)
	b = appendTime(appendTime(b, v.Time), v.Covered)
	b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, v.Rolling), v.Dropped)
	var flags uint8
	if v.Idle {
		flags |= flagIdle
	}
	return key, seal(key, append(b, flags))
}

// DecodeVersions parses the value of the VersionsKey. A newer level than Format is a *NewerError.
func DecodeVersions(key, value []byte) (VersionsOf, error) {
	r, err := open(key, value)
	if err != nil {
		return VersionsOf{}, err
	}
	v := VersionsOf{Level: r.u32()}
	if v.Level > Format {
		return VersionsOf{}, &NewerError{Level: v.Level}
	}
	v.Last, v.Newest, v.Number, v.Changed, v.Time, v.Covered = r.u32(), r.u32(), r.u64(), r.u64(), r.time(), r.time()
	v.Rolling, v.Dropped = r.u32(), r.u64()
	v.Idle = r.flag()
	return v, r.done()
}

// Snapshot is the state of a volume that is kept. Nothing of it ever changes.
type Snapshot struct {
	Gen    uint32 // which one, from 1: later snapshots have greater ones
	Number uint64 // of its record: what later records made is not in it
	Time   time.Time
	Used   Accounting // by the volume at that time
	// Moment: it was taken by itself, so that the volume can be looked at as of any second.
	Moment bool
	Name   string // empty for a moment
}

// SnapshotKey is the key of a snapshot.
func SnapshotKey(gen uint32) []byte {
	return finish(binary.BigEndian.AppendUint32(key(Snapshots, 4), gen))
}

// SnapshotRange is the range of the snapshots from gen on.
func SnapshotRange(gen uint32) (lo, hi []byte) {
	return binary.BigEndian.AppendUint32(key(Snapshots, 4), gen), []byte{byte(Snapshots) + 1}
}

// Encode returns the key and the value of s.
func (s *Snapshot) Encode() (key, value []byte) {
	key = SnapshotKey(s.Gen)
	b := binary.BigEndian.AppendUint64(begin(37+len(s.Name)), s.Number)
	b = appendTime(b, s.Time)
	b = binary.BigEndian.AppendUint64(b, s.Used.Bytes)
	b = binary.BigEndian.AppendUint64(b, s.Used.Inodes)
	if s.Moment {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	return key, seal(key, append(b, s.Name...))
}

// DecodeSnapshot parses the value of a SnapshotKey.
func DecodeSnapshot(key, value []byte) (Snapshot, error) {
	r, err := open(key, value)
	if err != nil {
		return Snapshot{}, err
	}
	s := Snapshot{Gen: binary.BigEndian.Uint32(key[1:5]), Number: r.u64(), Time: r.time()}
	s.Used = Accounting{Bytes: r.u64(), Inodes: r.u64()}
	s.Moment = r.flag()
	s.Name = string(r.rest())
	return s, r.done()
}

// NamedKey is the key of a snapshot by its name.
func NamedKey(name string) []byte {
	return finish(append(append(key(Named, len(name)+1), name...), 0))
}

// AllNamed is the range of all snapshots with a name, sorted by it.
func AllNamed() (lo, hi []byte) { return []byte{byte(Named)}, []byte{byte(Named) + 1} }

// EncodeNamed returns the key and the value of a snapshot by its name.
func EncodeNamed(name string, gen uint32) (key, value []byte) {
	key = NamedKey(name)
	return key, seal(key, binary.BigEndian.AppendUint32(begin(4), gen))
}

// DecodeNamed parses the value of a NamedKey.
func DecodeNamed(key, value []byte) (gen uint32, err error) {
	r, err := open(key, value)
	if err != nil {
		return 0, err
	}
	gen = r.u32()
	return gen, r.done()
}

// DeadKey is the key of a content that no inode has any more, and that snapshots may show.
func DeadKey(content uint64) []byte { return finish(number(key(Dead, 8), content)) }

// AllDead is the range of all contents that no inode has any more.
func AllDead() (lo, hi []byte) { return []byte{byte(Dead)}, []byte{byte(Dead) + 1} }

// DeadContent is a content that no inode has any more.
type DeadContent struct {
	Gen uint32 // the newest snapshot that may show it
	// Bytes is the sum of the lengths of its extents when it died. Before format level 4 it is 0,
	// and not written.
	Bytes uint64
}

// Encode returns the key and the value of d.
func (d DeadContent) Encode(content uint64, level uint32) (key, value []byte) {
	key = DeadKey(content)
	b := binary.BigEndian.AppendUint32(begin(12), d.Gen)
	if level >= TrashLevel {
		b = binary.BigEndian.AppendUint64(b, d.Bytes)
	}
	return key, seal(key, b)
}

// DecodeDead parses the value of a DeadKey.
func DecodeDead(key, value []byte) (content uint64, d DeadContent, err error) {
	r, err := open(key, value)
	if err != nil {
		return 0, DeadContent{}, err
	}
	d.Gen = r.u32()
	if len(r.left) > 0 {
		d.Bytes = r.u64()
	}
	return first(key), d, r.done()
}

func appendTime(b []byte, t time.Time) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(t.Unix()))
	return binary.BigEndian.AppendUint32(b, uint32(t.Nanosecond()))
}

func (r *reader) time() time.Time {
	sec, ns := r.u64(), r.u32()
	if ns >= 1e9 {
		r.bad = fmt.Sprintf("%d nanoseconds", ns)
	}
	return time.Unix(int64(sec), int64(ns)).UTC()
}
