// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
)

const gatewayPrefix = "gateway/"

func isConflict(err error) bool { return errors.Is(err, federation.ErrConflict) }

// registerTries bounds how often Register merges anew when other gateways of the site register at
// the same moment.
const registerTries = 10

// Register implements federation.Sites.
func (r *Registry) Register(ctx context.Context, s federation.Site) error {
	if err := s.Validate(); err != nil {
		return err
	}
	for try := 0; ; try++ {
		retry, err := r.register(ctx, s)
		if !retry || !isConflict(err) || try == registerTries {
			return err
		}
	}
}

// register tries once; retry says that a conflict came from a race.
func (r *Registry) register(ctx context.Context, s federation.Site) (retry bool, err error) {
	k := key(federation.KindSite, s.Name)
	reads := []Read{{Key: k}}
	for _, g := range s.Gateways {
		reads = append(reads, Read{Key: gatewayPrefix + g.Name})
	}
	res, _, err := r.get(ctx, "register", "site", s.Name, reads...)
	if err != nil {
		return false, err
	}
	conds, writes := make([]Condition, len(reads)), make([]Write, 0, len(reads))
	for i := range reads {
		conds[i].Key = reads[i].Key
		if len(res[i]) > 0 {
			conds[i].Revision = res[i][0].Revision
		}
	}
	if len(res[0]) > 0 {
		var old federation.Site
		if err := res[0][0].decode("site", s.Name, &old); err != nil {
			return false, err
		}
		if s, err = federation.MergeSite(old, s); err != nil {
			return false, err
		}
	}
	for i, rd := range reads[1:] {
		found := res[i+1]
		if len(found) > 0 && string(found[0].Value) != s.Name {
			if taken, err := r.hasGateway(ctx, string(found[0].Value), strings.TrimPrefix(rd.Key, gatewayPrefix)); err != nil || !taken {
				if err != nil {
					return false, err
				}
				found = nil // the index is not signed, and says what is not so
			}
		}
		if len(found) > 0 && string(found[0].Value) != s.Name {
			return false, &federation.Error{Op: "register", Kind: "gateway", Name: strings.TrimPrefix(rd.Key, gatewayPrefix),
				Err:    federation.ErrNameTaken,
				Detail: fmt.Sprintf("site %s has a gateway of that name: choose another name than at any other site", found[0].Value)}
		}
		writes = append(writes, Write{Key: rd.Key, Value: []byte(s.Name)})
	}
	value, err := federation.Encode(s)
	if err != nil {
		return false, wrap("register", "site", s.Name, err)
	}
	_, err = r.commit(ctx, "register", "site", s.Name, conds, append(writes, Write{Key: k, Value: value})...)
	return true, err
}

// hasGateway reports whether a site's record has a gateway.
func (r *Registry) hasGateway(ctx context.Context, site, gateway string) (bool, error) {
	var s federation.Site
	if _, err := r.one(ctx, "register", "site", site, key(federation.KindSite, site), &s); err != nil {
		return false, err
	}
	return slices.ContainsFunc(s.Gateways, func(g federation.Gateway) bool { return g.Name == gateway }), nil
}

// Sites implements federation.Sites.
func (r *Registry) Sites(ctx context.Context) ([]federation.SiteStatus, error) {
	sites, alive := key(federation.KindSite, ""), key(federation.KindAlive, "")
	res, _, err := r.get(ctx, "list", "sites", "", Read{Key: sites, Prefix: true}, Read{Key: alive, Prefix: true})
	if err != nil {
		return nil, err
	}
	beats := map[federation.Alive]bool{}
	for _, p := range res[1] {
		var a federation.Alive
		if err := federation.Decode("alive", strings.TrimPrefix(p.Key, alive), p.Value, &a); err != nil {
			return nil, err
		}
		beats[a] = true
	}
	out := make([]federation.SiteStatus, len(res[0]))
	for i, p := range res[0] {
		s := &out[i]
		if err := p.decode("site", strings.TrimPrefix(p.Key, sites), &s.Site); err != nil {
			return nil, err
		}
		s.Revision, s.Alive = p.Revision, map[string]bool{}
		for _, g := range s.Site.Gateways {
			if beats[federation.Alive{Gateway: g.Name, Site: s.Site.Name, Incarnation: g.Incarnation}] {
				s.Alive[g.Name] = true
			}
		}
	}
	return out, nil
}

// RemoveSite implements federation.Sites.
func (r *Registry) RemoveSite(ctx context.Context, name string) error {
	if err := federation.CheckLabel("site", name); err != nil {
		return err
	}
	k := key(federation.KindSite, name)
	var s federation.Site
	rev, err := r.one(ctx, "remove", "site", name, k, &s)
	if err != nil || rev == 0 {
		return err
	}
	writes := []Write{{Key: k, Delete: true}}
	for _, g := range s.Gateways {
		writes = append(writes, Write{Key: gatewayPrefix + g.Name, Delete: true})
	}
	_, err = r.commit(ctx, "remove", "site", name, []Condition{{Key: k, Revision: rev}}, writes...)
	return err
}

// RemoveGateway implements federation.Sites.
func (r *Registry) RemoveGateway(ctx context.Context, site, gateway string) error {
	if err := errors.Join(federation.CheckLabel("site", site), federation.CheckLabel("gateway", gateway)); err != nil {
		return err
	}
	k := key(federation.KindSite, site)
	res, _, err := r.get(ctx, "remove", "gateway", gateway, Read{Key: k}, Read{Key: gatewayPrefix + gateway})
	if err != nil || len(res[0]) == 0 {
		return err
	}
	rev := res[0][0].Revision
	var s federation.Site
	if err := res[0][0].decode("site", site, &s); err != nil {
		return err
	}
	n := len(s.Gateways)
	s.Gateways = slices.DeleteFunc(s.Gateways, func(g federation.Gateway) bool { return g.Name == gateway })
	// A reconciliation may have brought the name back, and not the site's entry.
	if len(s.Gateways) == n && (len(res[1]) == 0 || string(res[1][0].Value) != site) {
		return nil
	}
	value, err := federation.Encode(s)
	if err != nil {
		return wrap("remove", "gateway", gateway, err)
	}
	_, err = r.commit(ctx, "remove", "gateway", gateway, []Condition{{Key: k, Revision: rev}},
		Write{Key: k, Value: value}, Write{Key: gatewayPrefix + gateway, Delete: true})
	return err
}

// Heartbeat implements federation.Sites.
func (r *Registry) Heartbeat(ctx context.Context, a federation.Alive, ttl time.Duration) (federation.Heartbeat, error) {
	if err := federation.CheckLabel("gateway", a.Gateway); err != nil {
		return nil, err
	}
	if ttl < time.Second || ttl%time.Second != 0 {
		return nil, &federation.Error{Op: "heartbeat", Kind: "gateway", Name: a.Gateway, Err: federation.ErrInvalid,
			Detail: fmt.Sprintf("ttl is %v: write whole seconds, at least one", ttl)}
	}
	value, err := federation.Encode(a)
	if err != nil {
		return nil, wrap("heartbeat", "gateway", a.Gateway, err)
	}
	h, err := r.kv.Lease(ctx, key(federation.KindAlive, a.Gateway), value, ttl)
	if err != nil {
		return nil, wrap("heartbeat", "gateway", a.Gateway, err)
	}
	return h, nil
}
