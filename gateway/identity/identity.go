// SPDX-License-Identifier: Apache-2.0

// Package identity says who the users of a site's clients are to a volume. NFS clients send
// numbers (AUTH_SYS, RFC 5531 appendix A), and who has an admitted address can send any. A volume's
// owner bounds what they can be: with squash root or everybody is nobody, and with ranges each user
// of a client is a certain one of the volume, and who has no place is nobody.
//
// The rules:
//
//   - identity-1: the gateway that a client uses translates what the client sends, and what it is
//     shown.
//   - identity-2: a home takes from another gateway only users that the gateway's site can have.
//     Others are nobody: that gateway may not translate as it should.
//   - identity-3: nothing that a client sends makes it root of the volume, once root is squashed or
//     there are ranges.
//   - identity-4: a volume that asks for certificates takes requests only on connections of TLS
//     whose client showed one of this site, of part client (gateway/peers.Clients). What was sent
//     before TLS began counts for nothing. Only what a client has may be released on others.
package identity

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/weir-storage/weir/federation/users"
	"github.com/weir-storage/weir/volume"
)

// Map is what a volume's owner says of the users of a site's clients. It does not change, and nil
// leaves everybody who he is.
type Map struct {
	all, root bool // who is squashed
	uid, gid  uint32
	uids      []users.Range
	gids      []users.Range
	mask      uint32
}

// New reads what a volume's record says, which is valid.
func New(c users.Policy) *Map {
	uid, gid := c.Nobody()
	m := &Map{all: c.Squash == users.SquashAll, root: c.Squash == users.SquashRoot, uid: uint32(uid), gid: uint32(gid),
		uids: c.UIDs, gids: c.GIDs}
	mask, _ := strconv.ParseUint(c.Mask, 8, 32) // "" is 0
	m.mask = uint32(mask)
	if !m.all && !m.root && !m.mapped() && m.mask == 0 {
		return nil
	}
	return m
}

// mapped: there are ranges, and so who is in none is nobody.
func (m *Map) mapped() bool { return len(m.uids)+len(m.gids) > 0 }

// in translates a number of a client into the volume's; false: it is nobody's.
func (m *Map) in(list []users.Range, id uint32) (uint32, bool) {
	switch {
	case m.all, m.root && id == 0:
		return 0, false
	case !m.mapped():
		return id, true
	}
	for _, r := range list {
		if at := int64(id) - int64(r.Client); at >= 0 && at < int64(r.Length()) {
			return uint32(int64(r.Volume) + at), true
		}
	}
	return 0, false
}

// out is the inverse of in: users.DefaultNobody for a number of the volume that no user of a client
// has.
func (m *Map) out(list []users.Range, id uint32) uint32 {
	if m == nil || !m.mapped() {
		return id
	}
	for _, r := range list {
		if at := int64(id) - int64(r.Volume); at >= 0 && at < int64(r.Length()) {
			return uint32(int64(r.Client) + at)
		}
	}
	return users.DefaultNobody
}

// Caller is who a client's user is to the volume (identity-1).
func (m *Map) Caller(c volume.Caller) volume.Caller {
	return m.translate(c, func(list []users.Range, id uint32) (uint32, bool) { return m.in(list, id) })
}

// Group is which group of the volume one of a client's is; false: it is nobody's, and everybody is
// not nobody.
func (m *Map) Group(id uint32) (uint32, bool) {
	if m == nil {
		return id, true
	}
	if m.all {
		return m.gid, true
	}
	return m.in(m.gids, id)
}

// Bound is who a user is whom another gateway names, of a site for which m is (identity-2). Of what
// Caller returns it changes nothing.
func (m *Map) Bound(c volume.Caller) volume.Caller {
	return m.translate(c, func(list []users.Range, id uint32) (uint32, bool) {
		switch {
		case m.all, m.root && id == 0:
			return 0, false
		case !m.mapped():
			return id, true
		}
		return id, slices.ContainsFunc(list, func(r users.Range) bool {
			return int64(id) >= int64(r.Volume) && int64(id) < int64(r.Volume)+int64(r.Length())
		})
	})
}

func (m *Map) translate(c volume.Caller, known func([]users.Range, uint32) (uint32, bool)) volume.Caller {
	if m == nil {
		return c
	}
	out := volume.Caller{UID: m.uid, GID: m.gid, Mask: m.mask}
	if id, ok := known(m.uids, c.UID); ok {
		out.UID = id
	}
	if id, ok := known(m.gids, c.GID); ok {
		out.GID = id
	}
	for _, g := range c.Groups {
		if id, ok := known(m.gids, g); ok {
			out.Groups = append(out.Groups, id)
		}
	}
	return out
}

// Shown is a file as clients see it: its owner and group are users of theirs, and its mode lacks
// what they do not have.
func (m *Map) Shown(a volume.Attr) volume.Attr {
	if m != nil {
		a.UID, a.GID, a.Mode = m.out(m.uids, a.UID), m.out(m.gids, a.GID), a.Mode&^m.mask
	}
	return a
}

// Set translates what a client sets. It returns volume.ErrPerm for an owner or group that is no
// user of the site's. What the mask takes from clients they cannot give either.
func (m *Map) Set(s volume.SetAttr) (volume.SetAttr, error) {
	if m == nil {
		return s, nil
	}
	if s.Mode != nil {
		mode := *s.Mode &^ m.mask
		s.Mode = &mode
	}
	if !m.mapped() {
		return s, nil // the volume knows what the caller may give away
	}
	for _, x := range []struct {
		id   **uint32
		list []users.Range
	}{{&s.UID, m.uids}, {&s.GID, m.gids}} {
		if *x.id == nil {
			continue
		}
		id, ok := m.in(x.list, **x.id)
		if !ok {
			return s, fmt.Errorf("%w: %d is no user or group of this site's clients", volume.ErrPerm, **x.id)
		}
		*x.id = &id
	}
	return s, nil
}
