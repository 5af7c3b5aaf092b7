// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"time"

	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/volume"
)

func fromHandle(h volume.Handle) *forwardpb.Handle {
	return &forwardpb.Handle{Ino: h.Ino, Gen: h.Gen, Snap: h.Snap}
}

func toHandle(h *forwardpb.Handle) volume.Handle {
	return volume.Handle{Ino: h.GetIno(), Gen: h.GetGen(), Snap: h.GetSnap()}
}

func fromAttr(a volume.Attr) *forwardpb.Attr {
	return &forwardpb.Attr{
		Handle: fromHandle(a.Handle), Type: uint32(a.Type), Mode: a.Mode, Nlink: a.Nlink, Uid: a.UID, Gid: a.GID, Rdev: a.Rdev,
		Size: a.Size, Used: a.Used, Atime: a.Atime.UnixNano(), Mtime: a.Mtime.UnixNano(), Ctime: a.Ctime.UnixNano(),
		Btime: a.Btime.UnixNano(), Change: a.Change,
	}
}

func toAttr(a *forwardpb.Attr) volume.Attr {
	return volume.Attr{
		Handle: toHandle(a.GetHandle()), Type: volume.Type(a.GetType()), Mode: a.GetMode(), Nlink: a.GetNlink(), UID: a.GetUid(),
		GID:  a.GetGid(),
		Rdev: a.GetRdev(), Size: a.GetSize(), Used: a.GetUsed(), Atime: time.Unix(0, a.GetAtime()), Mtime: time.Unix(0, a.GetMtime()),
		Ctime: time.Unix(0, a.GetCtime()), Btime: time.Unix(0, a.GetBtime()), Change: a.GetChange(),
	}
}

func fromSet(s volume.SetAttr) *forwardpb.SetAttr {
	out := &forwardpb.SetAttr{Mode: s.Mode, Uid: s.UID, Gid: s.GID, Size: s.Size}
	out.Atime, out.AtimeNow = fromTime(s.Atime)
	out.Mtime, out.MtimeNow = fromTime(s.Mtime)
	return out
}

func fromTime(t *time.Time) (ns *int64, now bool) {
	switch {
	case t == nil:
		return nil, false
	case t.IsZero():
		return nil, true
	}
	n := t.UnixNano()
	return &n, false
}

func toSet(s *forwardpb.SetAttr) volume.SetAttr {
	if s == nil {
		return volume.SetAttr{}
	}
	return volume.SetAttr{Mode: s.Mode, UID: s.Uid, GID: s.Gid, Size: s.Size, Atime: toTime(s.Atime, s.AtimeNow),
		Mtime: toTime(s.Mtime, s.MtimeNow)}
}

func toTime(ns *int64, now bool) *time.Time {
	switch {
	case now:
		return &time.Time{}
	case ns == nil:
		return nil
	}
	t := time.Unix(0, *ns)
	return &t
}

func fromDir(d volume.DirChange) *forwardpb.DirChange {
	return &forwardpb.DirChange{Before: d.Before, After: d.After}
}

func toDir(d *forwardpb.DirChange) volume.DirChange {
	return volume.DirChange{Before: d.GetBefore(), After: d.GetAfter()}
}

func fromLock(l volume.Lock) *forwardpb.Lock {
	return &forwardpb.Lock{Gateway: l.Owner.Gateway, Owner: []byte(l.Owner.Owner), Start: l.Start, End: l.End, Exclusive: l.Exclusive}
}

func toLock(l *forwardpb.Lock) volume.Lock {
	return volume.Lock{Owner: volume.LockOwner{Gateway: l.GetGateway(), Owner: string(l.GetOwner())}, Start: l.GetStart(),
		End: l.GetEnd(), Exclusive: l.GetExclusive()}
}

// CallerOf is the user on whose behalf a gateway asks.
func CallerOf(q *forwardpb.CallRequest) volume.Caller {
	c := q.GetCaller()
	return volume.Caller{UID: c.GetUid(), GID: c.GetGid(), Groups: c.GetGroups(), Mask: c.GetMask()}
}

// fromRequest returns the request in q.
func fromRequest(q *forwardpb.CallRequest) volume.Request {
	return volume.Request{
		Caller: CallerOf(q),
		ID:     volume.OpID{Slot: string(q.GetSlot()), Seq: q.GetSeq(), Index: q.GetIndex()},
	}
}
