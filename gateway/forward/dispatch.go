// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"fmt"

	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// Home is a volume's home: the engine if it is here, else a Call to the gateway where it is.
type Home interface {
	volume.Reader
	volume.Changer
	// WriteAt is Write that also returns where the record of the write ends. The position is zero
	// if there is no record, or if it is applied already.
	WriteAt(ctx context.Context, r volume.Request, h volume.Handle, off uint64, data []byte, stable bool) (
		volume.Written, journal.Position, error)
	// Forget is as in volume.Volume.
	Forget(ctx context.Context, prefix string) error
	// Locks returns the locks of the gateway that sent the operation.
	Locks(Registration) Locks
}

// Dispatch executes q on home and returns the reply, without the epoch. For an unstable write, the
// reply has the position where its record ends. For everything else, the caller fills the position
// in. yield is volume.Request.Yield of the operation.
func Dispatch(ctx, yield context.Context, home Home, q *forwardpb.CallRequest) *forwardpb.CallReply {
	reply := new(forwardpb.CallReply)
	r := fromRequest(q)
	r.Yield = yield
	setOutcome(reply, dispatch(ctx, home, r, q, reply))
	return reply
}

func dispatch(ctx context.Context, home Home, r volume.Request, q *forwardpb.CallRequest, reply *forwardpb.CallReply) (err error) {
	h, target, name := toHandle(q.GetHandle()), toHandle(q.GetTarget()), string(q.GetName())
	locks := home.Locks(RegistrationOf(q))
	attr := func(a volume.Attr, err error) error {
		if err == nil {
			reply.Attr = fromAttr(a)
		}
		return err
	}
	dir := func(d volume.DirChange, err error) error {
		if err == nil {
			reply.Dir = fromDir(d)
		}
		return err
	}
	created := func(c volume.Created, err error) error {
		if err == nil {
			reply.Attr, reply.Flag, reply.Dir = fromAttr(c.Attr), c.New, fromDir(c.Dir)
		}
		return err
	}
	switch q.GetMethod() {
	case forwardpb.Method_METHOD_GET_ATTR:
		return attr(home.GetAttr(ctx, r, h))
	case forwardpb.Method_METHOD_LOOKUP:
		return attr(home.Lookup(ctx, r, h, name))
	case forwardpb.Method_METHOD_READ_LINK:
		s, err := home.ReadLink(ctx, r, h)
		reply.Data = []byte(s)
		return err
	case forwardpb.Method_METHOD_READ_DIR:
		entries, eof, err := home.ReadDir(ctx, r, h, q.GetOffset(), int(min(q.GetLength(), 4096)))
		for _, e := range entries {
			reply.Entries = append(reply.Entries, &forwardpb.Entry{Name: []byte(e.Name), Cookie: e.Cookie, Attr: fromAttr(e.Attr)})
		}
		reply.Flag = eof
		return err
	case forwardpb.Method_METHOD_READ:
		p := make([]byte, min(q.GetLength(), volume.MaxIO+1)) // the home refuses what is too long
		n, eof, err := home.Read(ctx, r, h, q.GetOffset(), p)
		reply.Data, reply.Flag = p[:n], eof
		return err
	case forwardpb.Method_METHOD_SEEK:
		reply.Number, err = home.Seek(ctx, r, h, q.GetOffset(), q.GetFlag())
		return err
	case forwardpb.Method_METHOD_GET_XATTR:
		reply.Data, err = home.GetXattr(ctx, r, h, name)
		return err
	case forwardpb.Method_METHOD_LIST_XATTR:
		names, err := home.ListXattr(ctx, r, h)
		for _, n := range names {
			reply.Names = append(reply.Names, []byte(n))
		}
		return err
	case forwardpb.Method_METHOD_SPACE:
		s, err := home.Space(ctx)
		reply.Space = []uint64{s.TotalBytes, s.FreeBytes, s.TotalInodes, s.FreeInodes}
		return err
	case forwardpb.Method_METHOD_CREATE:
		args := volume.CreateArgs{Type: volume.Type(q.GetType()), Mode: volume.CreateMode(q.GetMode()), Attr: toSet(q.GetSet()),
			Target: string(q.GetNewName()), Rdev: q.GetRdev()}
		copy(args.Verf[:], q.GetVerifier())
		return created(home.Create(ctx, r, h, name, args))
	case forwardpb.Method_METHOD_LINK:
		return created(home.Link(ctx, r, h, target, name))
	case forwardpb.Method_METHOD_REMOVE:
		return dir(home.Remove(ctx, r, h, name))
	case forwardpb.Method_METHOD_RENAME:
		src, dst, err := home.Rename(ctx, r, h, name, target, string(q.GetNewName()))
		reply.Dir, reply.Other = fromDir(src), fromDir(dst)
		return err
	case forwardpb.Method_METHOD_SET_ATTR:
		return attr(home.SetAttr(ctx, r, h, toSet(q.GetSet())))
	case forwardpb.Method_METHOD_WRITE:
		w, end, err := home.WriteAt(ctx, r, h, q.GetOffset(), q.GetData(), q.GetFlag())
		if stable := q.GetFlag(); !stable { // and no later: the attributes in the reply are those after this write
			reply.Seq, reply.Off = end.Seq, end.Off
		}
		return attr(w.Attr, err)
	case forwardpb.Method_METHOD_COMMIT:
		_, err := home.Commit(ctx, r, h)
		return err
	case forwardpb.Method_METHOD_PUNCH:
		return attr(home.Punch(ctx, r, h, q.GetOffset(), q.GetLength()))
	case forwardpb.Method_METHOD_SET_XATTR:
		return dir(home.SetXattr(ctx, r, h, name, q.GetData(), volume.XattrMode(q.GetMode())))
	case forwardpb.Method_METHOD_REMOVE_XATTR:
		return dir(home.RemoveXattr(ctx, r, h, name))
	case forwardpb.Method_METHOD_SET_LOCK:
		return locks.SetLock(ctx, r, h, toLock(q.GetLock()), q.GetFlag())
	case forwardpb.Method_METHOD_TEST_LOCK:
		return locks.TestLock(ctx, r, h, toLock(q.GetLock()))
	case forwardpb.Method_METHOD_UNLOCK:
		return locks.Unlock(ctx, r, h, toLock(q.GetLock()))
	case forwardpb.Method_METHOD_FORGET:
		return home.Forget(ctx, name)
	case forwardpb.Method_METHOD_REGISTER_LOCKS:
		lost, err := locks.Register(ctx, q.GetFlag(), toHeld(q.GetLocks()))
		reply.Lost = fromHeld(lost)
		return err
	}
	return fmt.Errorf("%w: method %d is not known at the home: upgrade it", volume.ErrInvalid, q.GetMethod())
}

// Refused returns the reply of a gateway that executed nothing.
func Refused(err error) *forwardpb.CallReply {
	reply := new(forwardpb.CallReply)
	setOutcome(reply, err)
	return reply
}
