// SPDX-License-Identifier: Apache-2.0

// Package forward carries a volume's operations from the gateway that a client uses to the volume's
// home (forwardpb/forward.proto). Call is the caller's side, Dispatch the home's.
//
// A reply carries the home's epoch and a position of the log. The caller answers its client after
// it applied the log up to there, so that clients read what they wrote at every site (protocol-25).
// After a gRPC error it is not known whether the operation was executed. The caller then sends the
// same operation with the same OpID again, to the present home (protocol-22).
package forward

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// Call is a Home at another gateway. Each Call executes one operation. It has the methods of
// volume.Reader and Changer; Locks returns those for locks.
type Call struct {
	Client forwardpb.ForwardClient
	Volume string // UUID
	Epoch  uint64 // of the home, as the caller knows it
	// Registration is what a change belongs to. Without one, a change returns ErrRegister and is
	// not sent.
	Registration Registration
	// Held reports whether the caller's clients have an inode open. Such an inode may have no name.
	Held func(volume.Handle) bool

	// After the operation: the home's epoch, and the position to apply first. Both are zero if
	// there was no reply.
	ReplyEpoch uint64
	Applied    journal.Position
	// Shown is the end of what the reply may show; zero: the home does not say.
	Shown journal.Position
	// Unanswered is true if a change was sent and no reply came: it may still be under way to the
	// home.
	Unanswered bool
}

// do sends q and returns the reply, or the operation's error.
func (c *Call) do(ctx context.Context, r volume.Request, q *forwardpb.CallRequest) (*forwardpb.CallReply, error) {
	q.Volume, q.Epoch = c.Volume, c.Epoch
	q.TargetHeld = c.Held != nil && q.Target != nil && c.Held(toHandle(q.GetTarget()))
	q.Held = c.Held != nil && q.Handle != nil && c.Held(toHandle(q.GetHandle()))
	q.Caller = &forwardpb.Caller{Uid: r.Caller.UID, Gid: r.Caller.GID, Groups: r.Caller.Groups, Mask: r.Caller.Mask}
	q.Slot, q.Seq, q.Index = []byte(r.ID.Slot), r.ID.Seq, r.ID.Index
	changes := Changes(q.Method)
	if changes {
		if c.Registration == (Registration{}) {
			return nil, ErrRegister
		}
		q.Incarnation, q.Registration = c.Registration.Incarnation, c.Registration.Number
	}
	reply, err := c.Client.Call(ctx, q)
	if status.Code(err) == codes.Aborted { // it panicked there
		return nil, fmt.Errorf("%w: call the home: %v", volume.ErrIO, err)
	}
	if err != nil {
		c.Unanswered = changes
		return nil, fmt.Errorf("%w: call the home: %v", volume.ErrUnknown, err)
	}
	c.ReplyEpoch = reply.GetEpoch()
	c.Applied = journal.Position{Seq: reply.GetSeq(), Off: reply.GetOff()}
	c.Shown = journal.Position{Seq: reply.GetShownSeq(), Off: reply.GetShownOff()}
	return reply, outcome(reply)
}

// GetAttr implements volume.Reader.
func (c *Call) GetAttr(ctx context.Context, r volume.Request, h volume.Handle) (volume.Attr, error) {
	reply, err := c.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_GET_ATTR, Handle: fromHandle(h)})
	return toAttr(reply.GetAttr()), err
}

// Lookup implements volume.Reader.
func (c *Call) Lookup(ctx context.Context, r volume.Request, dir volume.Handle, name string) (volume.Attr, error) {
	reply, err := c.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_LOOKUP, Handle: fromHandle(dir), Name: []byte(name)})
	return toAttr(reply.GetAttr()), err
}

// ReadLink implements volume.Reader.
func (c *Call) ReadLink(ctx context.Context, r volume.Request, h volume.Handle) (string, error) {
	reply, err := c.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_READ_LINK, Handle: fromHandle(h)})
	return string(reply.GetData()), err
}

// ReadDir implements volume.Reader.
func (c *Call) ReadDir(ctx context.Context, r volume.Request, dir volume.Handle, after uint64, limit int) ([]volume.Entry, bool, error) {
	reply, err := c.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_READ_DIR, Handle: fromHandle(dir),
		Offset: after, Length: uint64(limit)})
	var out []volume.Entry
	for _, e := range reply.GetEntries() {
		out = append(out, volume.Entry{Name: string(e.GetName()), Cookie: e.GetCookie(), Attr: toAttr(e.GetAttr())})
	}
	return out, reply.GetFlag(), err
}

// Read implements volume.Reader.
func (c *Call) Read(ctx context.Context, r volume.Request, h volume.Handle, off uint64, p []byte) (int, bool, error) {
	reply, err := c.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_READ, Handle: fromHandle(h), Offset: off,
		Length: uint64(len(p))})
	return copy(p, reply.GetData()), reply.GetFlag(), err
}

// Seek implements volume.Reader.
func (c *Call) Seek(ctx context.Context, r volume.Request, h volume.Handle, off uint64, hole bool) (uint64, error) {
	reply, err := c.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_SEEK, Handle: fromHandle(h), Offset: off, Flag: hole})
	return reply.GetNumber(), err
}

// GetXattr implements volume.Reader.
func (c *Call) GetXattr(ctx context.Context, r volume.Request, h volume.Handle, name string) ([]byte, error) {
	reply, err := c.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_GET_XATTR, Handle: fromHandle(h), Name: []byte(name)})
	return reply.GetData(), err
}

// ListXattr implements volume.Reader.
func (c *Call) ListXattr(ctx context.Context, r volume.Request, h volume.Handle) ([]string, error) {
	reply, err := c.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_LIST_XATTR, Handle: fromHandle(h)})
	var out []string
	for _, n := range reply.GetNames() {
		out = append(out, string(n))
	}
	return out, err
}

// Space implements volume.Reader.
func (c *Call) Space(ctx context.Context) (volume.Space, error) {
	reply, err := c.do(ctx, volume.Request{}, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_SPACE})
	if s := reply.GetSpace(); len(s) == 4 {
		return volume.Space{TotalBytes: s[0], FreeBytes: s[1], TotalInodes: s[2], FreeInodes: s[3]}, err
	}
	return volume.Space{}, err
}

// Create implements volume.Changer.
func (c *Call) Create(ctx context.Context, r volume.Request, dir volume.Handle, name string, args volume.CreateArgs) (
	volume.Created, error) {
	reply, err := c.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_CREATE, Handle: fromHandle(dir), Name: []byte(name),
		Type: uint32(args.Type), Mode: uint32(args.Mode), Verifier: args.Verf[:], Set: fromSet(args.Attr),
		NewName: []byte(args.Target), Rdev: args.Rdev})
	return created(reply), err
}

func created(reply *forwardpb.CallReply) volume.Created {
	return volume.Created{Attr: toAttr(reply.GetAttr()), New: reply.GetFlag(), Dir: toDir(reply.GetDir())}
}

// Link implements volume.Changer.
func (c *Call) Link(ctx context.Context, r volume.Request, h, dir volume.Handle, name string) (volume.Created, error) {
	reply, err := c.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_LINK, Handle: fromHandle(h),
		Target: fromHandle(dir), Name: []byte(name)})
	return created(reply), err
}

// Remove implements volume.Changer.
func (c *Call) Remove(ctx context.Context, r volume.Request, dir volume.Handle, name string) (volume.DirChange, error) {
	reply, err := c.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_REMOVE, Handle: fromHandle(dir), Name: []byte(name)})
	return toDir(reply.GetDir()), err
}

// Rename implements volume.Changer.
func (c *Call) Rename(ctx context.Context, r volume.Request, from volume.Handle, name string, to volume.Handle, newName string) (
	src, dst volume.DirChange, err error) {
	reply, err := c.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_RENAME, Handle: fromHandle(from),
		Name: []byte(name), Target: fromHandle(to), NewName: []byte(newName)})
	return toDir(reply.GetDir()), toDir(reply.GetOther()), err
}

// SetAttr implements volume.Changer.
func (c *Call) SetAttr(ctx context.Context, r volume.Request, h volume.Handle, set volume.SetAttr) (volume.Attr, error) {
	reply, err := c.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_SET_ATTR, Handle: fromHandle(h), Set: fromSet(set)})
	return toAttr(reply.GetAttr()), err
}

// Write implements volume.Changer. The caller makes the Verifier from ReplyEpoch.
func (c *Call) Write(ctx context.Context, r volume.Request, h volume.Handle, off uint64, data []byte, stable bool) (volume.Written, error) {
	w, _, err := c.WriteAt(ctx, r, h, off, data, stable)
	return w, err
}

// WriteAt implements Home, as Write does.
func (c *Call) WriteAt(ctx context.Context, r volume.Request, h volume.Handle, off uint64, data []byte, stable bool) (
	volume.Written, journal.Position, error) {
	reply, err := c.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_WRITE, Handle: fromHandle(h), Offset: off,
		Data: data, Flag: stable})
	return volume.Written{Attr: toAttr(reply.GetAttr())}, c.Applied, err
}

// Commit implements volume.Changer. The caller makes the Verifier from ReplyEpoch.
func (c *Call) Commit(ctx context.Context, r volume.Request, h volume.Handle) (volume.Verifier, error) {
	_, err := c.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_COMMIT, Handle: fromHandle(h)})
	return volume.Verifier{}, err
}

// Punch implements volume.Changer.
func (c *Call) Punch(ctx context.Context, r volume.Request, h volume.Handle, off, n uint64) (volume.Attr, error) {
	reply, err := c.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_PUNCH, Handle: fromHandle(h), Offset: off, Length: n})
	return toAttr(reply.GetAttr()), err
}

// SetXattr implements volume.Changer.
func (c *Call) SetXattr(ctx context.Context, r volume.Request, h volume.Handle, name string, value []byte, mode volume.XattrMode) (
	volume.DirChange, error) {
	reply, err := c.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_SET_XATTR, Handle: fromHandle(h),
		Name: []byte(name), Data: value, Mode: uint32(mode)})
	return toDir(reply.GetDir()), err
}

// RemoveXattr implements volume.Changer.
func (c *Call) RemoveXattr(ctx context.Context, r volume.Request, h volume.Handle, name string) (volume.DirChange, error) {
	reply, err := c.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_REMOVE_XATTR, Handle: fromHandle(h),
		Name: []byte(name)})
	return toDir(reply.GetDir()), err
}

// Forget implements volume.Volume's method.
func (c *Call) Forget(ctx context.Context, prefix string) error {
	_, err := c.do(ctx, volume.Request{}, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_FORGET, Name: []byte(prefix)})
	return err
}
