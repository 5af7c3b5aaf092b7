// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"

	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/volume"
)

// Registration names one report of a gateway to a home about its clients' locks (protocol-23).
// Every lock operation and every change belongs to a registration that a home has answered. A home
// executes them only while that registration is its gateway's newest. So an operation that was
// given up, or whose gateway is dead, does nothing if it arrives after its gateway registered anew.
type Registration struct {
	Incarnation string // of the gateway's pool
	Number      uint64 // grows while the incarnation stays, over restarts too
}

// Changes reports whether a method changes the volume's content. Such a call belongs to a
// Registration, as do the calls of Locks.
func Changes(m forwardpb.Method) bool {
	switch m {
	case forwardpb.Method_METHOD_CREATE, forwardpb.Method_METHOD_LINK, forwardpb.Method_METHOD_REMOVE, forwardpb.Method_METHOD_RENAME,
		forwardpb.Method_METHOD_SET_ATTR, forwardpb.Method_METHOD_WRITE, forwardpb.Method_METHOD_PUNCH,
		forwardpb.Method_METHOD_SET_XATTR, forwardpb.Method_METHOD_REMOVE_XATTR, forwardpb.Method_METHOD_FORGET:
		return true
	}
	return false
}

// Reads reports whether a method only reads, and takes part in no lock.
func Reads(m forwardpb.Method) bool {
	switch m {
	case forwardpb.Method_METHOD_GET_ATTR, forwardpb.Method_METHOD_LOOKUP, forwardpb.Method_METHOD_READ_LINK,
		forwardpb.Method_METHOD_READ_DIR, forwardpb.Method_METHOD_READ, forwardpb.Method_METHOD_SEEK,
		forwardpb.Method_METHOD_GET_XATTR, forwardpb.Method_METHOD_LIST_XATTR, forwardpb.Method_METHOD_SPACE:
		return true
	}
	return false
}

// RegistrationOf returns the registration that q belongs to.
func RegistrationOf(q *forwardpb.CallRequest) Registration {
	return Registration{Incarnation: q.GetIncarnation(), Number: q.GetRegistration()}
}

// HeldLock is a lock and the file it is on.
type HeldLock struct {
	Handle volume.Handle
	Lock   volume.Lock
}

// Locks are a gateway's locks at the home, under one Registration. SetLock and Unlock return
// ErrRegister, and change nothing, if that is not the newest.
type Locks interface {
	volume.Locker
	// Register begins the Registration. held has all locks of the gateway's clients, and replaces
	// what the home has. With recovering, the gateway restarted and its clients still reclaim: held
	// is ignored, and what the home has stays until a Register without recovering. lost has the
	// locks that cannot be kept because others have them by now.
	Register(ctx context.Context, recovering bool, held []HeldLock) (lost []HeldLock, err error)
}

// callLocks implements Locks with a Call.
type callLocks struct {
	c   *Call
	reg Registration
}

// Locks returns the locks at the home under reg.
func (c *Call) Locks(reg Registration) Locks { return callLocks{c, reg} }

func (k callLocks) do(ctx context.Context, r volume.Request, q *forwardpb.CallRequest) (*forwardpb.CallReply, error) {
	q.Incarnation, q.Registration = k.reg.Incarnation, k.reg.Number
	return k.c.do(ctx, r, q)
}

// SetLock implements volume.Locker.
func (k callLocks) SetLock(ctx context.Context, r volume.Request, h volume.Handle, l volume.Lock, reclaim bool) error {
	_, err := k.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_SET_LOCK, Handle: fromHandle(h),
		Lock: fromLock(l), Flag: reclaim})
	return err
}

// TestLock implements volume.Locker.
func (k callLocks) TestLock(ctx context.Context, r volume.Request, h volume.Handle, l volume.Lock) error {
	_, err := k.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_TEST_LOCK, Handle: fromHandle(h), Lock: fromLock(l)})
	return err
}

// Unlock implements volume.Locker.
func (k callLocks) Unlock(ctx context.Context, r volume.Request, h volume.Handle, l volume.Lock) error {
	_, err := k.do(ctx, r, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_UNLOCK, Handle: fromHandle(h), Lock: fromLock(l)})
	return err
}

// Register implements Locks.
func (k callLocks) Register(ctx context.Context, recovering bool, held []HeldLock) ([]HeldLock, error) {
	reply, err := k.do(ctx, volume.Request{}, &forwardpb.CallRequest{Method: forwardpb.Method_METHOD_REGISTER_LOCKS,
		Flag: recovering, Locks: fromHeld(held), RegistersChanges: true})
	return toHeld(reply.GetLost()), err
}

func fromHeld(locks []HeldLock) []*forwardpb.HeldLock {
	var out []*forwardpb.HeldLock
	for _, l := range locks {
		out = append(out, &forwardpb.HeldLock{Handle: fromHandle(l.Handle), Lock: fromLock(l.Lock)})
	}
	return out
}

func toHeld(locks []*forwardpb.HeldLock) []HeldLock {
	var out []HeldLock
	for _, l := range locks {
		out = append(out, HeldLock{Handle: toHandle(l.GetHandle()), Lock: toLock(l.GetLock())})
	}
	return out
}
