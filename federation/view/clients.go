// SPDX-License-Identifier: Apache-2.0

package view

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/users"
)

// clients says who may use which volume. Every NFS request is checked against it. An admission with
// a node counts only while that node has its attachment. View.mu guards it.
type clients struct {
	admitted map[clientKey]federation.Admission // of this site
	volumes  map[netip.Addr]map[string]struct{} // of admitted, by client: strangers ask too
	attached map[Node]attachment                // of this site
	all      map[string]admitted                // all sites' admissions, by name
	users    map[siteKey]tally                  // how many of them each site has
	detached map[Node]federation.Revision       // see Detach
	oldest   federation.Revision                // of detached; 0: there is none
}

// Node is a node of this site's cluster, as a user of one volume.
type Node struct{ Volume, Node string }

// Use is what the view says of one client's use of one volume, all of one moment.
type Use struct {
	// Record is the volume's desired state; nil: there is none that could be read.
	Record *federation.Volume
	// Synced: the view has had everything once. Before that, what is missing here may exist.
	Synced bool
	// Admitted: an admission of the client is in force. Access says for what.
	Admitted bool
	Access   federation.Access
	// Recorded is the admission as it was written, in force or not; nil: there is none.
	Recorded *federation.Admission
	// Clients says who the client's users are to the volume.
	Clients users.Policy
}

type clientKey struct {
	volume string
	client netip.Addr
}

type siteKey struct{ volume, site string }

// admitted is what counts of an admission of any site.
type admitted struct {
	person bool // a person of the volume's owner wrote it, for a client that is no node
	writes bool
}

// tally counts admissions: all, and of those that persons wrote, by what they allow.
type tally struct{ all, read, write int }

func (t *tally) add(a admitted, n int) {
	t.all += n
	switch {
	case a.person && a.writes:
		t.write += n
	case a.person:
		t.read += n
	}
}

type attachment struct {
	access   federation.Access
	revision federation.Revision
}

func newClients() clients {
	return clients{admitted: map[clientKey]federation.Admission{}, volumes: map[netip.Addr]map[string]struct{}{},
		attached: map[Node]attachment{}, all: map[string]admitted{}, users: map[siteKey]tally{}, detached: map[Node]federation.Revision{}}
}

// names calls f with every record that is kept of clients.
func (c *clients) names(site string, f func(federation.Kind, string)) {
	for name := range c.all {
		f(federation.KindAdmission, name)
	}
	for n := range c.attached {
		f(federation.KindAttachment, site+"/"+n.Volume+"/"+n.Node)
	}
}

// apply takes in a record, and returns the site that it is about. own is the view's site.
func (c *clients) apply(e federation.Event, own string) (site string) {
	parts := strings.SplitN(e.Name, "/", 3)
	if len(parts) != 3 {
		return "" // the registry has no such names
	}
	site, volume, who := parts[0], parts[1], parts[2]
	switch {
	case e.Err != nil: // view-2
	case e.Kind == federation.KindAttachment && site != own:
	case e.Kind == federation.KindAttachment && e.Attachment == nil:
		delete(c.attached, Node{volume, who})
	case e.Kind == federation.KindAttachment:
		c.attached[Node{volume, who}] = attachment{e.Attachment.Access, e.Revision}
	default:
		c.admit(e, volume, site)
		if addr, err := netip.ParseAddr(who); site == own && err == nil {
			c.put(clientKey{volume, addr}, e.Admission)
		}
	}
	return site
}

// put takes in an admission of this site; nil: it is gone.
func (c *clients) put(k clientKey, a *federation.Admission) {
	put(c.admitted, k, a)
	of := c.volumes[k.client]
	switch {
	case a == nil:
		delete(of, k.volume)
		if len(of) == 0 {
			delete(c.volumes, k.client)
		}
	case of == nil:
		c.volumes[k.client] = map[string]struct{}{k.volume: {}}
	default:
		of[k.volume] = struct{}{}
	}
}

// admit counts an admission, of any site.
func (c *clients) admit(e federation.Event, volume, site string) {
	k := siteKey{volume, site}
	t := c.users[k]
	if was, there := c.all[e.Name]; there {
		t.add(was, -1)
		delete(c.all, e.Name)
	}
	if a := e.Admission; a != nil {
		is := admitted{person: a.Node == "", writes: a.Access == federation.ReadWrite}
		t.add(is, 1)
		c.all[e.Name] = is
	}
	if c.users[k] = t; t.all == 0 {
		delete(c.users, k)
	}
}

// use returns what a client may do with a volume.
func (c *clients) use(volume string, client netip.Addr) (access federation.Access, recorded *federation.Admission, ok bool) {
	a, there := c.admitted[clientKey{volume, client}]
	switch {
	case !there:
		return "", nil, false
	case a.Node == "":
		return a.Access, &a, true
	}
	n, ok := c.inForce(Node{volume, a.Node})
	access = federation.ReadOnly // also for what this version does not know
	if a.Access == federation.ReadWrite {
		access = n.access
	}
	return access, &a, ok
}

// inForce returns a node's attachment; false: it has none, or one that Detach ended.
func (c *clients) inForce(n Node) (attachment, bool) {
	a, ok := c.attached[n]
	return a, ok && a.revision > c.detached[n]
}

// heard forgets of detached what the watch has sent by now.
func (c *clients) heard(rev federation.Revision) {
	if len(c.detached) == 0 || rev < c.oldest {
		return
	}
	c.oldest = 0
	for n, until := range c.detached {
		a, there := c.attached[n]
		if until <= rev && (!there || a.revision > until) {
			delete(c.detached, n)
		} else if c.oldest == 0 || until < c.oldest {
			c.oldest = until
		}
	}
}

// Use returns what the view says of a client's use of a volume at this site.
func (v *View) Use(volume string, client netip.Addr) (u Use) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if e := v.volumes.all[volume]; e != nil && e.Record != nil {
		u.Record, u.Clients = e.Record, e.Record.ClientsAt(v.site)
	}
	u.Synced = v.synced
	u.Access, u.Recorded, u.Admitted = v.used(u.Record, volume, client)
	return u
}

// used is clients.use within what the volume's owner allows at this site. The caller holds mu.
func (v *View) used(record *federation.Volume, volume string, client netip.Addr) (access federation.Access,
	recorded *federation.Admission, ok bool) {
	access, recorded, ok = v.clients.use(volume, client)
	if !ok || record == nil {
		return access, recorded, ok
	}
	switch v.allowed(record, v.site) {
	case "":
		return "", recorded, false
	case federation.ReadOnly:
		access = federation.ReadOnly
	}
	return access, recorded, true
}

// Uses returns the uses of all volumes with a record to which the client is admitted at this site,
// by UUID.
func (v *View) Uses(client netip.Addr) (out []Use) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for volume := range v.clients.volumes[client] {
		e := v.volumes.all[volume]
		if e == nil || e.Record == nil {
			continue
		}
		if access, recorded, ok := v.used(e.Record, volume, client); ok {
			out = append(out, Use{Record: e.Record, Synced: v.synced, Admitted: true, Access: access, Recorded: recorded,
				Clients: e.Record.ClientsAt(v.site)})
		}
	}
	slices.SortFunc(out, func(a, b Use) int { return strings.Compare(a.Record.UUID, b.Record.UUID) })
	return out
}

// Addresses returns the addresses with which a node is admitted to a volume, in force or not,
// sorted.
func (v *View) Addresses(n Node) (out []netip.Addr) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for k, a := range v.clients.admitted {
		if k.volume == n.Volume && a.Node == n.Node {
			out = append(out, k.client)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// HasAddress finds a node other than this one that has an address: some volume is attached to that
// node, and the node is admitted to the volume with the address.
func (v *View) HasAddress(client netip.Addr, except string) (other Node, found bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for k, a := range v.clients.admitted {
		if k.client != client || a.Node == "" || a.Node == except {
			continue
		}
		if n := (Node{k.volume, a.Node}); !found || n.Volume < other.Volume {
			if _, ok := v.clients.inForce(n); ok {
				other, found = n, true
			}
		}
	}
	return other, found
}

// Allowed is the most that a volume's owner allows to the clients of a site: everything at the
// sites of its own organization, and elsewhere what a grant says, or an admission that a person of
// the owner wrote. Where the copy is blind, that is nothing. "": nothing, or the volume's record is
// not known.
func (v *View) Allowed(volume, site string) federation.Access {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if e := v.volumes.all[volume]; e != nil && e.Record != nil {
		return v.allowed(e.Record, site)
	}
	return ""
}

// allowed is Allowed. The caller holds mu.
func (v *View) allowed(record *federation.Volume, site string) federation.Access {
	if record.IsBlind(site) {
		return ""
	}
	t := v.clients.users[siteKey{record.UUID, site}]
	reads := t.read > 0
	if s, ok := v.sites.all[site]; ok && s.Organization == record.Owner || t.write > 0 {
		return federation.ReadWrite
	}
	for _, g := range record.Grants {
		if g.Site == site && g.Access == federation.ReadWrite {
			return federation.ReadWrite
		}
		reads = reads || g.Site == site
	}
	if reads {
		return federation.ReadOnly
	}
	return ""
}

// Foreign is what a volume's owner says of clients of another organization's site. It is nothing
// for sites of his own, which do as he says. known is false if volume or site are not known, now.
func (v *View) Foreign(volume, site string) (said users.Policy, known bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	e := v.volumes.all[volume]
	s, ok := v.sites.all[site]
	if e == nil || e.Record == nil || !ok {
		return users.Policy{}, false
	}
	if s.Organization == e.Record.Owner {
		return users.Policy{}, true
	}
	return e.Record.ClientsAt(site), true
}

// Forbidden reports whether a volume's owner allows nothing to a site, also if clients there are
// admitted; a site that is to have a copy with the key is not meant.
func (v *View) Forbidden(volume, site string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	e := v.volumes.all[volume]
	return e != nil && e.Record != nil && !hasKey(e.Record, site) && v.allowed(e.Record, site) == ""
}

// hasKey reports whether a site is to have a copy with the key.
func hasKey(r *federation.Volume, site string) bool {
	return slices.Contains(r.Sites, site) && !r.IsBlind(site)
}

// MayUse reports whether the gateways of a site may use a volume: the site is to have a copy with
// the key, or it has an admission of a client, as far as the volume's owner allows any.
func (v *View) MayUse(volume, site string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	e := v.volumes.all[volume]
	return e != nil && e.Record != nil && hasKey(e.Record, site) || v.uses(e, volume, site)
}

// MayRead reports whether the gateways of a site may read a volume: they may use it, or the site is
// to have a copy of a volume that its owner makes of this one now (ADR 53). Who only reads has no
// clients there, and no locks.
func (v *View) MayRead(volume, site string) bool {
	v.mu.RLock()
	e := v.volumes.all[volume]
	fills := e != nil && e.Record != nil && v.fills(e.Record, site)
	v.mu.RUnlock()
	return fills || v.MayUse(volume, site)
}

// uses reports whether a site has clients of a volume that its owner allows. The caller holds mu.
func (v *View) uses(e *Volume, volume, site string) bool {
	return v.clients.users[siteKey{volume, site}].all > 0 && (e == nil || e.Record == nil || v.allowed(e.Record, site) != "")
}

// Detach notes that a node had no attachment at that revision, as read from the registry with a
// quorum (view-4). The watch may not have sent it yet. It closes no channel.
func (v *View) Detach(n Node, rev federation.Revision) {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := &v.clients
	c.detached[n] = max(c.detached[n], rev)
	if c.oldest == 0 || rev < c.oldest {
		c.oldest = rev
	}
}

// Attach takes Detach back: the node has an attachment, as read from the registry with a quorum.
func (v *View) Attach(n Node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.clients.detached, n)
}
