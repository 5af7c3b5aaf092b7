// SPDX-License-Identifier: Apache-2.0

// Package users says who the users of clients are to a volume, as its owner writes it in policies
// and grants. Package gateway/identity does it.
package users

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
)

// Policy says who the users of clients are to a volume, and from which ports clients call. The zero
// value leaves everybody who he says he is.
type Policy struct {
	// Squash is who is nobody; "" is SquashNone.
	Squash Squash `json:"squash,omitempty"`
	// AnonymousUID and AnonymousGID are who nobody is in the volume; 0: 65534.
	AnonymousUID int `json:"anonymousUID,omitempty"`
	AnonymousGID int `json:"anonymousGID,omitempty"`
	// UIDs and GIDs say which user or group of clients is which of the volume. If there is any, who
	// is in none is nobody.
	UIDs []Range `json:"uids,omitempty"`
	GIDs []Range `json:"gids,omitempty"`
	// Mask has the permissions of groups and others, in octal, that clients do not have.
	Mask string `json:"mask,omitempty"`
	// Ports are those that clients call from; "" is PortsAny.
	Ports Ports `json:"ports,omitempty"`
	// Certificates is what connections of clients show; "" is CertificatesNone.
	Certificates Certificates `json:"certificates,omitempty"`
}

// Squash is which users of clients are nobody.
type Squash string

// Who is squashed.
const (
	SquashNone Squash = "None"
	SquashRoot Squash = "Root" // user 0, and group 0
	SquashAll  Squash = "All"
)

// Ports are those that clients call from.
type Ports string

// The values of Ports.
const (
	PortsAny        Ports = "Any"
	PortsPrivileged Ports = "Privileged" // below 1024, which only root may use
)

// Certificates is what connections of clients show.
type Certificates string

// The values of Certificates.
const (
	CertificatesNone     Certificates = "None"
	CertificatesRequired Certificates = "Required" // one of the client's site, of part client
)

// Range says that users from Client on are those of the volume from Volume on, Count of them (0:
// one).
type Range struct {
	Client int `json:"client"`
	Volume int `json:"volume"`
	Count  int `json:"count,omitempty"`
}

// Length is how many users the range has.
func (r Range) Length() int { return max(r.Count, 1) }

// DefaultNobody is who nobody is in a volume, if its owner does not say otherwise, and whom clients
// are shown as the owner of what belongs to no user of theirs.
const DefaultNobody = 65534

// Bounds of Policy.
const (
	mostRanges = 64
	// mostID is the last user that a range may have: what is above 31 bits has meanings of its own
	// on clients.
	mostID = 1<<31 - 2
)

var maskForm = regexp.MustCompile(`^0?[0-7]{1,2}$`)

// IsZero reports whether c says nothing.
func (c Policy) IsZero() bool { return reflect.ValueOf(c).IsZero() }

// Nobody is who nobody is in the volume.
func (c Policy) Nobody() (uid, gid int) {
	return cmp.Or(c.AnonymousUID, DefaultNobody), cmp.Or(c.AnonymousGID, DefaultNobody)
}

// Problems returns what is wrong with c: the field below clients, its value, and what to do.
func (c Policy) Problems() (out [][3]string) {
	bad := func(field string, value any, what string, a ...any) {
		out = append(out, [3]string{field, fmt.Sprint(value), fmt.Sprintf(what, a...)})
	}
	switch c.Squash {
	case "", SquashNone, SquashRoot, SquashAll:
	default:
		bad("squash", c.Squash, "not known: write None, Root or All")
	}
	if c.Squash == SquashAll && len(c.UIDs)+len(c.GIDs) > 0 {
		bad("squash", c.Squash, "then nobody is left for uids and gids: remove them, or write squash: None")
	}
	anonymous := func(field string, id int) {
		if id < 0 || id > mostID {
			bad(field, id, "not from 1 to %d: write who nobody is in the volume", mostID)
		}
	}
	anonymous("anonymousUID", c.AnonymousUID)
	anonymous("anonymousGID", c.AnonymousGID)
	ranges := func(field string, list []Range, nobody int) {
		if len(list) > mostRanges {
			bad(field, len(list), "more than %d ranges: join those that follow each other", mostRanges)
			return
		}
		for i, r := range list {
			at := fmt.Sprintf("%s[%d]", field, i)
			switch {
			case r.Count < 0 || r.Count > mostID:
				bad(at+".count", r.Count, "not from 1 to %d: write how many users follow each other", mostID)
				continue
			case r.Client < 0 || r.Client+r.Length()-1 > mostID:
				bad(at+".client", r.Client, "its %d users are not all from 0 to %d: write the first user of the clients",
					r.Length(), mostID)
			case r.Volume < 1 || r.Volume+r.Length()-1 > mostID:
				bad(at+".volume", r.Volume, "its %d users are not all from 1 to %d, and nobody becomes root: write the first user of the "+
					"volume", r.Length(), mostID)
			}
			for _, n := range []int{nobody, DefaultNobody} {
				if r.Volume <= n && n < r.Volume+r.Length() {
					bad(at+".volume", r.Volume, "its %d users have %d among them, who is nobody: leave that out", r.Length(), n)
					break
				}
			}
			for j, s := range list[:i] {
				if overlap(r.Client, s.Client, r.Length(), s.Length()) || overlap(r.Volume, s.Volume, r.Length(), s.Length()) {
					bad(at, fmt.Sprintf("%d to %d", r.Client, r.Volume), "has users of %s[%d] too: give each a place once", field, j)
				}
			}
		}
	}
	ranges("uids", c.UIDs, c.AnonymousUID)
	ranges("gids", c.GIDs, c.AnonymousGID)
	if c.Mask != "" && !maskForm.MatchString(c.Mask) {
		bad("mask", c.Mask, "no permissions of groups and others in octal: write one such as 077 or 007")
	}
	switch c.Ports {
	case "", PortsAny, PortsPrivileged:
	default:
		bad("ports", c.Ports, "not known: write Any or Privileged")
	}
	switch c.Certificates {
	case "", CertificatesNone, CertificatesRequired:
	default:
		bad("certificates", c.Certificates, "not known: write None or Required")
	}
	return out
}

func overlap(a, b, lengthA, lengthB int) bool { return a < b+lengthB && b < a+lengthA }

// Wrong returns what is wrong first with the policy of a volume, or with those of sites; empty:
// nothing.
func Wrong(all Policy, sites map[string]Policy) string {
	for _, p := range all.Problems() {
		return fmt.Sprintf("clients: %s: %s: %s", p[0], p[1], p[2])
	}
	for site, c := range sites {
		for _, p := range c.Problems() {
			return fmt.Sprintf("clients at site %s: %s: %s: %s", site, p[0], p[1], p[2])
		}
	}
	return ""
}
