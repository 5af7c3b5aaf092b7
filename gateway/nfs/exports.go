// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-storage/weir/gateway/identity"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// Outcomes of Exports.Open.
var (
	// ErrNotAdmitted says that the volume exists, and that the client may not use it.
	ErrNotAdmitted = errors.New("client is not admitted to the volume")
	// ErrNoVolume says that this gateway does not serve such a volume.
	ErrNoVolume = errors.New("no such volume")
	// ErrDeleted is an ErrNoVolume. It says that the volume was deleted, or that the
	// registry does not know it, so that clients' opens and locks on it can end.
	ErrDeleted = fmt.Errorf("%w: it was deleted, or never was", ErrNoVolume)
)

// errPort says that the volume takes requests from privileged ports only.
var errPort = errors.New("the volume takes requests from ports below 1024 only: mount it without noresvport")

// errCertificate says that the volume takes requests on certified connections only.
var errCertificate = errors.New("the volume takes requests only of clients that show a certificate of their site: mount it with " +
	"xprtsec=mtls")

// admits returns why requests on a connection are refused for what it is.
func (x Export) admits(c *conn) error {
	switch {
	case x.Privileged && !c.privileged:
		return errPort
	case x.Certified && c.certificate == "":
		return errCertificate
	}
	return nil
}

// Export is a volume as clients see it.
type Export struct {
	Name     string // in the pseudo root; one path component
	ID       volume.ID
	ReadOnly bool
	// IDs says who the client's users are to the volume; nil: who they say.
	IDs *identity.Map
	// Privileged: requests are taken from ports below 1024 only.
	Privileged bool
	// Certified: requests are taken on connections only that Config.StartTLS certified.
	Certified bool
}

// Exports says which client may use which volume. Its methods are called for
// almost every request, from any goroutine, and must not wait.
type Exports interface {
	// Exports lists the volumes that the client is admitted to, in any order.
	Exports(client netip.Addr) []Export
	// Open returns a volume. ErrNotAdmitted, ErrNoVolume, ErrDeleted.
	Open(client netip.Addr, id volume.ID) (volume.Volume, Export, error)
	// Named returns why Exports does not list a volume of this name: ErrNotAdmitted, ErrNoVolume,
	// or ErrDeleted if there is none.
	Named(name string) error
	// Unsettled reports whether a volume may admit the client that Exports does not list yet: the
	// registry has not told all, or the volume is not open here. Such a client is no stranger.
	Unsettled(client netip.Addr) bool
}

// admitted returns nil if a volume admits the client on this connection. Else it returns why none
// does: of volumes that want another kind of connection, what one of them wants.
func (s *Server) admitted(c *conn) error {
	why := ErrNotAdmitted
	for _, x := range s.cfg.Exports.Exports(c.addr) {
		err := x.admits(c)
		if err == nil {
			return nil
		}
		why = err
	}
	if errors.Is(why, ErrNotAdmitted) && s.cfg.Exports.Unsettled(c.addr) {
		return nil
	}
	return why
}

// stranger reports whether no volume admits the client on this connection.
func (k *call) stranger() bool { return k.s.admitted(k.conn) != nil }

// anyVolume stands for the volume that a stranger wants, which nobody knows yet.
const anyVolume = "VOLUME"

// unlessStranger has the request denied if st says that a stranger asked (state-9).
func (k *call) unlessStranger(st xdr.Status) xdr.Status {
	if st == xdr.NFS4ERR_ACCESS {
		k.deny = true
		if why := k.s.admitted(k.conn); why != nil {
			k.s.refuse(k.conn.addr, anyVolume, why)
		}
	}
	return st
}

// rootFileid is the pseudo root's inode number.
const rootFileid = 1

// mountFileid is a volume's inode number in the pseudo root, and its cookie there.
func mountFileid(id volume.ID) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(id[:]) // never fails
	// Not 0 to 2, which are no cookies, and positive as a signed number.
	return h.Sum64()>>1 | 1<<32
}

// listed returns a client's volumes in the order of their cookies.
func listed(x Exports, client netip.Addr) []Export {
	list := slices.Clone(x.Exports(client))
	slices.SortFunc(list, func(a, b Export) int {
		if ca, cb := mountFileid(a.ID), mountFileid(b.ID); ca != cb {
			if ca < cb {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return list
}

// rootChange is the pseudo root's change attribute for a client. It differs whenever
// the list of volumes does.
func rootChange(list []Export) uint64 {
	h := fnv.New64a()
	for _, e := range list {
		_, _ = h.Write(e.ID[:]) // never fails
		_, _ = h.Write([]byte(e.Name + "\x00"))
	}
	return h.Sum64()
}

// Reason is why something was refused before it was executed.
type Reason uint8

// The reasons.
const (
	NotAdmitted Reason = iota // the volume does not admit the client
	Unknown                   // there is no such volume, or it is deleted
	NotServed                 // this gateway does not serve the volume, or not yet
	Slots                     // the volume holds its share of the session's slots
	Connections               // the address, or all together, have too many
	Credential                // it is not AUTH_SYS, or does not parse
	Port                      // the volume takes requests from privileged ports only
	Certificate               // the volume takes requests on certified connections only
	Stranger                  // no volume admits the client
	Memory                    // there is none for the request or its reply: it has to come again
	Clients                   // the address, or all together, have too many
	Sessions                  // the client, or all together, have too many
	States                    // the client, or all together, have too much open or locked
	Setup                     // of its address as much is being made or ended: it has to come again
	Idle                      // a connection was closed, because it did not get on
	Reasons                   // their number
)

var reasonNames = [Reasons]string{"not_admitted", "unknown", "not_served", "slots", "connections", "credential", "port", "certificate",
	"stranger", "memory", "clients", "sessions", "states", "setup", "idle"}

func (r Reason) String() string { return reasonNames[r] }

// refusals limits log lines to one per client and volume in a minute.
type refusals struct {
	mu   sync.Mutex
	last map[string]time.Time
}

const (
	refusalEvery = time.Minute
	refusalLimit = 1024
)

// first tells whether to log a refusal now.
func (r *refusals) first(what string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t, ok := r.last[what]; ok && now.Sub(t) < refusalEvery {
		return false
	}
	if len(r.last) >= refusalLimit || r.last == nil {
		r.last = map[string]time.Time{}
	}
	r.last[what] = now
	return true
}

// refuse logs that a client asked for a volume that it may not use. what is the
// volume's name or identity, or anyVolume.
func (s *Server) refuse(client netip.Addr, what string, err error) {
	remedy := fmt.Sprintf("admit it with: weir volume admit %s --site SITE --client %s (in Kubernetes attaching does that); "+
		"or correct the name in the mount", what, client)
	switch {
	case errors.Is(err, errPort):
		s.refusedFor[Port].Add(1)
		remedy = "mount it without noresvport, or write ports: Any into the volume's clients"
	case errors.Is(err, errCertificate):
		s.refusedFor[Certificate].Add(1)
		remedy = "give the client a certificate (weir pki issue --part client), and mount with xprtsec=mtls"
	case errors.Is(err, ErrNotAdmitted) && what == anyVolume:
		s.refusedFor[Stranger].Add(1)
	case errors.Is(err, ErrNotAdmitted):
		s.refusedFor[NotAdmitted].Add(1)
	case errors.Is(err, ErrDeleted):
		s.refusedFor[Unknown].Add(1)
	default:
		s.refusedFor[NotServed].Add(1)
	}
	if s.refused.first(client.String()+" "+what, s.cfg.Clock.Now()) {
		s.cfg.Log.Warn("nfs client refused", "client", client, "volume", what, "err", err, "remedy", remedy)
	}
}
