// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/mirror"
	"github.com/weir-storage/weir/controllers/object"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/pace"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/controllers/quota"
	"github.com/weir-storage/weir/federation"
)

// operator is what the reconcilers share.
type operator struct {
	Options
	object.Writer
	self    plan.Self
	mirror  *mirror.Mirror
	quotas  *quota.Book
	rollout *pace.Rollout
	lags    *pace.Lags
	serial  atomic.Uint64 // of the charter that was looked at
}

// await returns why nothing can be decided yet: the registry was not read, or this cluster is not
// its site.
func (o *operator) await() error {
	synced, down := o.mirror.Synced(), o.mirror.Down()
	switch {
	case !synced && down != nil:
		return down
	case !synced:
		return &outcome.Wait{After: 2 * time.Second} // it is being read: nothing to show
	}
	return nil
}

// registered returns why this cluster may not act as its site.
func (o *operator) registered() error {
	s, ok := o.mirror.Site(o.Site)
	switch {
	case ok && s.Cluster == o.self.Cluster:
		return nil
	case ok && s.Cluster != "":
		return outcome.Stopped(v1alpha1.ReasonNameTaken, fmt.Sprintf("another cluster, with UID %s, is registered as site %s, and this "+
			"one has %s: install this cluster under another site name", s.Cluster, o.Site, o.self.Cluster))
	}
	return outcome.Waiting(v1alpha1.ReasonRegistryUnavailable, fmt.Sprintf("this cluster is not registered as site %s yet: see the Site "+
		"of that name", o.Site), outcome.Later)
}

// find reads a volume's record from the registry itself; nil: it is not there.
func (o *operator) find(ctx context.Context, uuid string) (*federation.Volume, federation.Revision, error) {
	v, rev, err := o.Registry.GetVolume(ctx, uuid)
	switch {
	case errors.Is(err, federation.ErrNotFound):
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	}
	return &v, rev, nil
}

// unreachable reports how to show that the registry does not answer: what is known to be well stays
// so, for it runs on.
func unreachable(v *plan.Verdict, list []metav1.Condition, deleting bool) bool {
	return v.Reason == v1alpha1.ReasonRegistryUnavailable && !deleting && object.Ready(list).Status == metav1.ConditionTrue
}
