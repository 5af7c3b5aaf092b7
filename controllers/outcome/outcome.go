// SPDX-License-Identifier: Apache-2.0

// Package outcome says what a reconcile of the operator came to: it is done, waits for a person,
// waits for what comes by itself, or is tried again because of an error.
package outcome

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
)

const (
	// Soon is when an object is looked at again that another writer changed first.
	Soon = 300 * time.Millisecond
	// Later is when an object is looked at again that waits, if no event comes before.
	Later = 10 * time.Second
	// seldom is when an object is looked at again whose change is normally announced by an event.
	seldom = time.Minute
)

// Stop is an error: the reconcile goes on when a person, or something that is watched, changes.
type Stop struct{ *plan.Verdict }

// Unwrap implements errors.Unwrap.
func (s *Stop) Unwrap() error { return s.Verdict }

// Wait is an error: the reconcile goes on by itself. It is repeated at the latest after that time.
// Without a Verdict there is nothing to show meanwhile.
type Wait struct {
	*plan.Verdict
	After time.Duration
}

// Unwrap implements errors.Unwrap.
func (w *Wait) Unwrap() error { return w.Verdict }

// Stopped makes a Stop.
func Stopped(reason, message string) error {
	return &Stop{&plan.Verdict{Reason: reason, Message: message}}
}

// Waiting makes a Wait.
func Waiting(reason, message string, after time.Duration) error {
	return &Wait{&plan.Verdict{Reason: reason, Message: message}, after}
}

// Outcome is what a reconcile came to.
type Outcome struct {
	// Verdict is what to show in Ready; nil: all is well, or there is nothing to show.
	Verdict *plan.Verdict
	// Working: it goes on by itself. Stalled: somebody has to act.
	Working, Stalled bool
	// Quiet: no status is to be written. The object is looked at again.
	Quiet bool
	// Result and Err are what to return to controller-runtime.
	Result ctrl.Result
	Err    error
}

// Settle reads the error that a reconcile's steps returned.
func Settle(err error) Outcome {
	var s *Stop
	var w *Wait
	switch {
	case err == nil:
		return Outcome{}
	case errors.As(err, &s):
		return Outcome{Verdict: s.Verdict, Stalled: true}
	case errors.As(err, &w):
		return Outcome{Verdict: w.Verdict, Working: true, Quiet: w.Verdict == nil, Result: ctrl.Result{RequeueAfter: w.After}}
	case errors.Is(err, federation.ErrConflict), apierrors.IsConflict(err):
		return Outcome{Quiet: true, Result: ctrl.Result{RequeueAfter: Soon}} // another writer was faster
	case errors.Is(err, federation.ErrRewound), errors.Is(err, federation.ErrAccess), errors.Is(err, federation.ErrVersion):
		return Outcome{Verdict: &plan.Verdict{Reason: v1alpha1.ReasonRegistryUnavailable, Message: err.Error()}, Stalled: true,
			Result: ctrl.Result{RequeueAfter: seldom}}
	case unavailable(err):
		return Outcome{Verdict: &plan.Verdict{Reason: v1alpha1.ReasonRegistryUnavailable,
			Message: err.Error() + ": it is tried again, and volumes that run go on"}, Working: true,
			Result: ctrl.Result{RequeueAfter: Later}}
	case errors.Is(err, federation.ErrInvalid):
		return Outcome{Verdict: &plan.Verdict{Reason: v1alpha1.ReasonInvalid, Message: err.Error()}, Stalled: true}
	}
	return Outcome{Err: err}
}

// unavailable: no answer. ErrUnknown is one of these, since all that is written to the registry is
// written again in the same way.
func unavailable(err error) bool {
	return errors.Is(err, federation.ErrUnavailable) || errors.Is(err, federation.ErrUnknown) || errors.Is(err, context.DeadlineExceeded)
}
