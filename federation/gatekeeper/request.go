// SPDX-License-Identifier: Apache-2.0

package gatekeeper

import (
	"fmt"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

// write is one change of a request. Keys are relative to the federation's prefix.
type write struct {
	key      string
	value    []byte
	deletes  bool
	prefixed bool // a deletion of all keys that begin with key
}

// fact is what is there of a key before a request; revision 0: nothing.
type fact struct {
	value    []byte
	revision int64
}

// request is what somebody asks for, and what it is judged by.
type request struct {
	who    pki.Identity
	now    time.Time
	writes []write
	// facts has all keys that the rules look at, as needs returned them.
	facts  map[string]fact
	header *pb.ResponseHeader // of etcd's answer with the facts
	// credentials are the gatekeeper's, by which a charter is checked.
	credentials *pki.Credentials
	seal        *signed.Seal
	// refused: a gateway says that the registry went back.
	refused bool
}

// denial is why a request is refused.
type denial struct {
	key string
	why string
}

func (d *denial) Error() string { return d.key + ": " + d.why }

func (q *request) deny(key, format string, a ...any) error {
	return &denial{key, fmt.Sprintf(format, a...)}
}

// kindOf is the first word of a key.
func kindOf(key string) string {
	kind, _, _ := strings.Cut(key, "/")
	return kind
}

// path splits a key behind its kind into n parts, of which the last may have slashes; nil if it has
// fewer.
func path(key string, n int) []string {
	parts := strings.SplitN(key, "/", n+1)
	if len(parts) != n+1 {
		return nil
	}
	return parts[1:]
}

// Kinds of keys that are no federation.Kind.
const (
	kindName       = "name"
	kindGateway    = "gateway"
	kindNotice     = "rewound"
	kindTestimony  = "testimony"
	kindCanary     = "canary"
	kindReconciled = "reconciled"
)

func join(kind federation.Kind, parts ...string) string {
	return string(kind) + "/" + strings.Join(parts, "/")
}

// decode reads a record, nil if there is none.
func decode[T any](key string, value []byte) (*T, error) {
	if value == nil {
		return nil, nil
	}
	out := new(T)
	_, name, _ := strings.Cut(key, "/")
	if err := federation.Decode(kindOf(key), name, value, out); err != nil {
		return nil, err
	}
	return out, nil
}

// before is the record of a key as it is.
func before[T any](q *request, key string) (*T, error) { return decode[T](key, q.facts[key].value) }

// after is the record that a write puts, nil if it deletes it.
func after[T any](q *request, w write) (*T, error) {
	out, err := decode[T](w.key, w.value)
	if err == nil && out == nil && !w.deletes {
		err = q.deny(w.key, "its value is empty")
	}
	return out, err
}

// written returns the write of a key, nil if there is none.
func (q *request) written(key string) *write {
	for i := range q.writes {
		if q.writes[i].key == key && !q.writes[i].prefixed {
			return &q.writes[i]
		}
	}
	return nil
}

// site is the record of the site that the requester is of, if that belongs to his organization.
func (q *request) site() (*federation.Site, error) {
	s, err := before[federation.Site](q, join(federation.KindSite, q.who.Site))
	if err != nil || s == nil || s.Organization != q.who.Organization {
		return nil, err
	}
	return s, nil
}

// at reports whether the requester is that part of that site.
func (q *request) at(site string, parts ...pki.Part) (bool, error) {
	if q.who.Site != site {
		return false, nil
	}
	for _, p := range parts {
		if q.who.Part == p {
			s, err := q.site()
			return s != nil, err
		}
	}
	return false, nil
}

// personOf reports whether the requester is a person who speaks for an organization.
func (q *request) personOf(organization string) bool {
	return q.who.Part == pki.PartPerson && organization != "" && q.who.Organization == organization
}

// removes reports whether the requester may remove what is an organization's.
func (q *request) removes(organization string) bool {
	return q.who.Part == pki.PartAdministrator || q.personOf(organization)
}

// gateway reports whether the requester is that gateway, which its site has registered.
func (q *request) gateway(name string) (bool, error) {
	if ok, err := q.at(q.who.Site, pki.PartGateway); !ok || err != nil || q.who.Gateway != name {
		return false, err
	}
	s, err := q.site() // whatever the index says, which is not signed
	return err == nil && slices.ContainsFunc(s.Gateways, func(g federation.Gateway) bool { return g.Name == name }), err
}

// siteOf is the site of which a gateway is, as the registry has it.
// The index is not signed: a site that has no such gateway is not meant.
func (q *request) siteOf(gateway string) string {
	at := string(q.facts[kindGateway+"/"+gateway].value)
	f, known := q.facts[join(federation.KindSite, at)]
	if !known {
		return at
	}
	if !slices.Contains(signed.GatewaysOf(f.value), gateway) {
		return ""
	}
	return at
}

// owner reports whether the requester may write a volume's record.
func (q *request) owner(v *federation.Volume) (bool, error) {
	if q.personOf(v.Owner) {
		return true, nil
	}
	if v.Owner != q.who.Organization || v.OwnerSite != q.who.Site || v.OwnerSite == "" {
		return false, nil
	}
	ok, err := q.at(v.OwnerSite, pki.PartOperator)
	if !ok || err != nil {
		return false, err
	}
	s, err := q.site()
	return err == nil && s.Cluster == v.OwnerCluster, err
}

// allowed is the most that the owner of a volume allows at a site: of a namespace, or of any for
// ""; "" is nothing.
func (q *request) allowed(v *federation.Volume, site, namespace string) (most federation.Access, err error) {
	s, err := before[federation.Site](q, join(federation.KindSite, site))
	if err != nil || s == nil {
		return "", err
	}
	if s.Organization == v.Owner {
		return federation.ReadWrite, nil
	}
	for _, g := range v.Grants {
		if g.Site == site && (namespace == "" || g.Namespace == namespace) && most != federation.ReadWrite {
			most = g.Access
		}
	}
	return most, nil
}

// within reports whether an access is no more than another.
func within(a, most federation.Access) bool {
	return most == federation.ReadWrite || most != "" && a == most
}
