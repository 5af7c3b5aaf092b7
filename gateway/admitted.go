// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/netip"
	"strings"

	"github.com/weir-storage/weir/federation"
)

// admissions are who may use which volume at this gateway's site: the mirror's part that each file handle is checked against. An
// admission with a node counts only while that node has its attachment. It is guarded by mirror.mu.
type admissions struct {
	clients map[admissionKey]admitted
	nodes   map[attachmentKey]attached
	// detached has the attachments that were found to be removed, up to which revision: the mirror may not have heard of that yet,
	// or not even of the attachment.
	detached  map[attachmentKey]federation.Revision
	oldest    federation.Revision // of detached
	ended     map[string]bool     // volumes that somebody, or nobody, may use any more, for expelling
	expelling map[string]bool     // those that it looks after
}

type admissionKey struct {
	volume string
	client netip.Addr
}

type admitted struct {
	access federation.Access
	node   string // empty: a person said so
}

type attachmentKey struct{ volume, node string }

type attached struct {
	access   federation.Access
	revision federation.Revision
}

func newAdmissions() admissions {
	return admissions{clients: map[admissionKey]admitted{}, nodes: map[attachmentKey]attached{}, detached: map[attachmentKey]federation.Revision{}, ended: map[string]bool{}, expelling: map[string]bool{}}
}

// of says what a client may do with a volume; false: nothing.
func (a *admissions) of(volume string, client netip.Addr) (federation.Access, bool) {
	c, ok := a.clients[admissionKey{volume, client}]
	if !ok || c.node == "" {
		return c.access, ok
	}
	n, ok := a.attached(attachmentKey{volume, c.node})
	return lesser(c.access, n.access), ok
}

// attached returns a node's attachment if it counts.
func (a *admissions) attached(k attachmentKey) (attached, bool) {
	n, ok := a.nodes[k]
	return n, ok && n.revision > a.detached[k]
}

// lesser is the access that allows less.
func lesser(a, b federation.Access) federation.Access {
	if a == federation.ReadWrite {
		return b
	}
	return federation.ReadOnly
}

// take takes in the record of an admission at this site.
func (a *admissions) take(volume, client string, record *federation.Admission) {
	addr, err := netip.ParseAddr(client)
	if err != nil {
		return // the registry refuses such
	}
	if record == nil {
		delete(a.clients, admissionKey{volume, addr})
		a.ended[volume] = true
	} else {
		a.clients[admissionKey{volume, addr}] = admitted{record.Access, record.Node}
	}
}

// attach takes in an attachment.
func (a *admissions) attach(e federation.Event, site string) {
	part := strings.SplitN(e.Name, "/", 3)
	if len(part) != 3 || part[0] != site {
		return
	}
	k := attachmentKey{part[1], part[2]}
	if e.Attachment == nil {
		delete(a.nodes, k)
		a.ended[k.volume] = true
	} else {
		a.nodes[k] = attached{e.Attachment.Access, e.Revision}
	}
}

// heard forgets of detached what the mirror knows itself now.
func (a *admissions) heard(revision federation.Revision) {
	if len(a.detached) == 0 || revision < a.oldest {
		return
	}
	a.oldest = 0
	for k, until := range a.detached {
		n, there := a.nodes[k]
		if until <= revision && (!there || n.revision > until) {
			delete(a.detached, k)
		} else if a.oldest == 0 || until < a.oldest {
			a.oldest = until
		}
	}
}

// detach has a node's attachments not count that are as old as revision: there is none any more.
func (m *mirror) detach(k attachmentKey, revision federation.Revision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := &m.admissions
	a.detached[k] = max(a.detached[k], revision)
	if a.oldest == 0 || revision < a.oldest {
		a.oldest = revision
	}
}

// attachedAgain takes detach back.
func (m *mirror) attachedAgain(k attachmentKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.admissions.detached, k)
}

// admission says what a client may do with a volume at this gateway, and which node it is; false: nothing.
func (m *mirror) admission(volume string, client netip.Addr) (access federation.Access, node string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	access, ok = m.admissions.of(volume, client)
	return access, m.admissions.clients[admissionKey{volume, client}].node, ok
}

// addresses are those that a node is admitted with to a volume, in force or not.
func (m *mirror) addresses(k attachmentKey) (out []netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, c := range m.admissions.clients {
		if key.volume == k.volume && c.node == k.node {
			out = append(out, key.client)
		}
	}
	return out
}

// holder is another node that has an address: some volume is attached to it, to which it is admitted with that address.
func (m *mirror) holder(client netip.Addr, node string) (other, volume string, found bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, c := range m.admissions.clients {
		if key.client != client || c.node == "" || c.node == node {
			continue
		}
		if _, ok := m.admissions.attached(attachmentKey{key.volume, c.node}); ok {
			return c.node, key.volume, true
		}
	}
	return "", "", false
}

// recorded is the admission of a client as it was written, in force or not.
func (m *mirror) recorded(volume string, client netip.Addr) (admitted, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.admissions.clients[admissionKey{volume, client}]
	return c, ok
}
