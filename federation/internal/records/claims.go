// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"

	"github.com/weir-storage/weir/federation"
)

// PutClaim implements federation.Claims.
func (r *Registry) PutClaim(ctx context.Context, c federation.Claim) error {
	if err := c.Validate(); err != nil {
		return err
	}
	_, err := r.put(ctx, "put", "claim", c.Volume, key(federation.KindClaim, c.Volume, c.Site, c.Namespace, c.Name), nil, c)
	return err
}

// DeleteClaim implements federation.Claims.
func (r *Registry) DeleteClaim(ctx context.Context, volume, site, namespace, name string) error {
	c := federation.Claim{Volume: volume, Site: site, Namespace: namespace, Name: name, Kind: federation.ClaimGeoVolume,
		Access: federation.ReadOnly}
	if err := c.Validate(); err != nil {
		return err
	}
	_, err := r.commit(ctx, "delete", "claim", volume, nil, Write{Key: key(federation.KindClaim, volume, site, namespace, name),
		Delete: true})
	return err
}

// ListClaims implements federation.Claims.
func (r *Registry) ListClaims(ctx context.Context, volume string) ([]federation.Claim, error) {
	prefix := key(federation.KindClaim, "")
	if volume != "" {
		if err := checkNames("volume", volume); err != nil {
			return nil, err
		}
		prefix = key(federation.KindClaim, volume, "")
	}
	return list[federation.Claim](ctx, r, "claim", prefix)
}

// PutAttachment implements federation.Attachments.
func (r *Registry) PutAttachment(ctx context.Context, a federation.Attachment) error {
	if err := a.Validate(); err != nil {
		return err
	}
	_, err := r.put(ctx, "put", "attachment", a.Volume, key(federation.KindAttachment, a.Site, a.Volume, a.Node), nil, a)
	return err
}

// GetAttachment implements federation.Attachments.
func (r *Registry) GetAttachment(ctx context.Context, site, volume, node string) (federation.Attachment, error) {
	a := federation.Attachment{Site: site, Volume: volume, Node: node, Access: federation.ReadOnly}
	if err := a.Validate(); err != nil {
		return a, err
	}
	rev, err := r.one(ctx, "get", "attachment", volume, key(federation.KindAttachment, site, volume, node), &a)
	if err == nil && rev == 0 {
		err = notFound("get", "attachment", site+"/"+volume+"/"+node)
	}
	return a, err
}

// DeleteAttachment implements federation.Attachments.
func (r *Registry) DeleteAttachment(ctx context.Context, site, volume, node string) error {
	a := federation.Attachment{Site: site, Volume: volume, Node: node, Access: federation.ReadOnly}
	if err := a.Validate(); err != nil {
		return err
	}
	_, err := r.commit(ctx, "delete", "attachment", volume, nil,
		Write{Key: key(federation.KindAttachment, site, volume, node), Delete: true})
	return err
}

// ListAttachments implements federation.Attachments.
func (r *Registry) ListAttachments(ctx context.Context, site string) ([]federation.Attachment, error) {
	prefix := key(federation.KindAttachment, "")
	if site != "" {
		if err := federation.CheckLabel("site", site); err != nil {
			return nil, err
		}
		prefix = key(federation.KindAttachment, site, "")
	}
	return list[federation.Attachment](ctx, r, "attachment", prefix)
}

// PutLost implements federation.Losses.
func (r *Registry) PutLost(ctx context.Context, l federation.Lost) error {
	if err := federation.CheckLabel("site", l.Site); err != nil {
		return err
	}
	_, err := r.put(ctx, "put", "lost", l.Site, key(federation.KindLost, l.Site), nil, l)
	return err
}

// DeleteLost implements federation.Losses.
func (r *Registry) DeleteLost(ctx context.Context, site string) error {
	if err := federation.CheckLabel("site", site); err != nil {
		return err
	}
	_, err := r.commit(ctx, "delete", "lost", site, nil, Write{Key: key(federation.KindLost, site), Delete: true})
	return err
}

// ListLost implements federation.Losses.
func (r *Registry) ListLost(ctx context.Context) ([]federation.Lost, error) {
	return list[federation.Lost](ctx, r, "lost", key(federation.KindLost, ""))
}
