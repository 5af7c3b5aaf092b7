// SPDX-License-Identifier: Apache-2.0

package controllers

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
	// soon is when something that another writer was faster with is looked at again.
	soon = 300 * time.Millisecond
	// later is when what comes by itself is looked at again, if no event tells earlier.
	later = 10 * time.Second
	// seldom is for what normally an event tells of.
	seldom = time.Minute
)

// stop: it does not go on until a person, or something that is watched, changes something.
type stop struct{ *plan.Verdict }

func (s *stop) Unwrap() error { return s.Verdict }

// wait: it goes on by itself; look again at the latest after that time.
type wait struct {
	*plan.Verdict
	after time.Duration
}

func (w *wait) Unwrap() error { return w.Verdict }

func stopped(reason, message string) error {
	return &stop{&plan.Verdict{Reason: reason, Message: message}}
}

func waiting(reason, message string, after time.Duration) error {
	return &wait{&plan.Verdict{Reason: reason, Message: message}, after}
}

// outcome is what a reconcile came to.
type outcome struct {
	verdict          *plan.Verdict // nil: all is well, or nothing to tell
	working, stalled bool
	// quiet: it came to nothing that is worth telling, and is looked at again.
	quiet  bool
	result ctrl.Result
	err    error
}

// settle reads an error.
func settle(err error) outcome {
	var s *stop
	var w *wait
	switch {
	case err == nil:
		return outcome{}
	case errors.As(err, &s):
		return outcome{verdict: s.Verdict, stalled: true}
	case errors.As(err, &w):
		return outcome{verdict: w.Verdict, working: true, quiet: w.Verdict == nil, result: ctrl.Result{RequeueAfter: w.after}}
	case errors.Is(err, federation.ErrConflict), apierrors.IsConflict(err):
		return outcome{quiet: true, result: ctrl.Result{RequeueAfter: soon}} // another writer was faster
	case errors.Is(err, federation.ErrRewound), errors.Is(err, federation.ErrAccess), errors.Is(err, federation.ErrVersion):
		return outcome{verdict: &plan.Verdict{Reason: v1alpha1.ReasonRegistryUnavailable, Message: err.Error()}, stalled: true,
			result: ctrl.Result{RequeueAfter: seldom}}
	case unavailable(err):
		return outcome{verdict: &plan.Verdict{Reason: v1alpha1.ReasonRegistryUnavailable,
			Message: err.Error() + ": it is tried again, and volumes that run go on"}, working: true, result: ctrl.Result{RequeueAfter: later}}
	case errors.Is(err, federation.ErrInvalid):
		return outcome{verdict: &plan.Verdict{Reason: v1alpha1.ReasonInvalid, Message: err.Error()}, stalled: true}
	}
	return outcome{err: err}
}

// unavailable: no answer. ErrUnknown is one of these, since all that is written to the registry is written again in the same way.
func unavailable(err error) bool {
	return errors.Is(err, federation.ErrUnavailable) || errors.Is(err, federation.ErrUnknown) || errors.Is(err, context.DeadlineExceeded)
}
