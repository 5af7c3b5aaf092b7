// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"

	"github.com/weir-storage/weir/federation"
)

// charterKey is a key of its own: a federation has one charter.
const charterKey = string(federation.KindCharter)

// GetCharter implements federation.Charters.
func (r *Registry) GetCharter(ctx context.Context) (c federation.Charter, _ federation.Revision, err error) {
	rev, err := r.one(ctx, "get", "charter", "", charterKey, &c)
	if err == nil && rev == 0 {
		err = notFound("get", "charter", "")
	}
	return c, rev, err
}

// PutCharter implements federation.Charters.
func (r *Registry) PutCharter(ctx context.Context, prev federation.Revision, c federation.Charter) (federation.Revision, error) {
	if err := c.Validate(); err != nil {
		return 0, err
	}
	return r.put(ctx, "put", "charter", "", charterKey, []Condition{{Key: charterKey, Revision: prev}}, c)
}
