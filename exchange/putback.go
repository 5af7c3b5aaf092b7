// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"context"
	"errors"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
)

// PutBack has the registry have a request of this organization again that it lost, in the words
// that were signed then. The signature is a new one, as gatekeepers take no paper that was signed
// long ago. It counts since the host's answer has the digest of its terms.
//
// Nothing is put over a request that is there. One that says more than the terms is refused: a
// gatekeeper takes notice, say, only when it is given, as else somebody could make up that he gave
// it long ago. So is one that the host has gone beyond: there was a later one.
func (d *Desk) PutBack(ctx context.Context, r paper.Request) error {
	if r.Guest != d.Organization {
		return refused("agreement %s: its guest %q puts its request back", r.ID, r.Guest)
	}
	return d.write(ctx, func() ([]paper.At, error) {
		switch _, err := d.Book.GetPaper(ctx, paper.RequestName(r.ID)); {
		case err == nil:
			return nil, nil // it is there, and newer maybe
		case !errors.Is(err, federation.ErrNotFound):
			return nil, err
		}
		a, err := d.Book.GetPaper(ctx, paper.AnswerName(r.ID))
		switch {
		case errors.Is(err, federation.ErrNotFound):
			return nil, refused("agreement %s: the registry has no answer of %q either, by which the request would count", r.ID, r.Host)
		case err != nil:
			return nil, err
		case !r.Agrees(a.Answer):
			return nil, refused("agreement %s: the answer of %q is not to these terms", r.ID, r.Host)
		case r.Withdrawn != nil || r.Noticed != nil || r.Drained != nil || r.HostGone != nil || r.Confirmed != nil:
			return nil, refused("agreement %s: the request said more than its terms, and that is not said again with the old date", r.ID)
		case a.Answer.Deleting != nil:
			return nil, refused("agreement %s: %q deletes already, so a later request may be lost", r.ID, r.Host)
		}
		return []paper.At{{Paper: paper.Paper{Request: &r}}}, nil
	})
}
