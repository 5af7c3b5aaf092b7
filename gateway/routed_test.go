// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/volume"
)

// atHome returns a client's lock as its gateway names it at the home.
func atHome(gateway string, l volume.Lock) volume.Lock {
	l.Owner = volume.LockOwner{Gateway: gateway, Owner: l.Owner.Gateway + "\x00" + l.Owner.Owner}
	return l
}

// underRegistration executes f on the home's locks until its outcome is known. granted is called
// when f has succeeded, before another registration can begin.
func underRegistration(ctx context.Context, r *routing.Router, f func(ctx context.Context, k forward.Locks) error, granted func()) error {
	return r.AtHome(ctx, volume.Request{}, true, func(ctx context.Context, h forward.Home) error {
		return r.Locks.Under(ctx, func(reg forward.Registration) error {
			err := f(ctx, h.Locks(reg))
			if err == nil {
				granted()
			}
			return err
		})
	})
}

// lateAdmissions is a registry whose watch reports admissions only while late is not locked.
type lateAdmissions struct {
	federation.Registry
	late interface {
		Lock()
		Unlock()
	}
}

func (r lateAdmissions) Watch(ctx context.Context, f func(federation.Event) error) error {
	return r.Registry.Watch(ctx, func(e federation.Event) error {
		if e.Kind == federation.KindAdmission {
			r.late.Lock()
			defer r.late.Unlock()
		}
		return f(e)
	})
}
