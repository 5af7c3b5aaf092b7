// SPDX-License-Identifier: Apache-2.0

// Package federation is the port to the registry: the one place where sites agree.
//
// # What is kept
//
// Every record is one key below the federation's prefix; its value is
//
//	{"version": N, "record": {…}}
//
// N is the record's format. A reader refuses an N above its own (ErrVersion), and a field it does
// not know: an older writer that swapped such a record would drop what it cannot see. A change of
// fields is therefore a new N. Observed alone may get new fields: it is only shown, and never
// swapped.
//
//	control/<volume>                          Control      the home, or who takes over (swap)
//	volume/<volume>                           Volume       the owner (swap)
//	name/<name>                               volume UUID  with volume/<volume>
//	site/<site>                               Site         gateways, each its own entry (merged)
//	gateway/<gateway>                         site name    with site/<site>
//	alive/<gateway>                           Alive        the gateway
//	admission/<site>/<volume>/<client>        Admission    a person, or the site's gateway
//	attachment/<site>/<volume>/<node>         Attachment   the site's CSI controller
//	claim/<volume>/<site>/<namespace>/<name>  Claim        the site's operator
//	lost/<site>                               Lost         a person
//	purged/<volume>                           Purge        a gateway; each leaves it (swap)
//	keyring/<volume>                          Keyring      with volume/…, then its home (swap)
//	observed/<volume>/<gateway>               Observed     that gateway
//	rewound/<gateway>                         Notice       that gateway (protocol-7)
//	testimony/<gateway>/<key>                 Testimony    that gateway
//	canary/<gateway>                          a revision   that gateway (protocol-7)
//	reconciled                                a Reconciliation, by a person
//	charter                                   Charter      an administrator (swap)
//	paper/<name>                              paper.Paper  an organization (swap)
//
// The last column names the one writer. A swap is a compare-and-swap. A name and its volume change
// together, as do a site and its gateways: a gateway is at one site. An alive key is bound to a
// lease, and is the only one that expires. The site's gateway writes an Admission for a node that
// asked it.
//
// # Rules
//
//   - protocol-1: Control changes only by compare-and-swap on its revision and is bound to no
//     lease. No number in it goes back: CheckSwap refuses a lower epoch, another home in the same
//     epoch, and a history that does not begin with the history it replaces. Every implementation
//     calls it before it writes.
//   - protocol-3: a swap whose outcome is unknown returns ErrUnknown, never ErrConflict. It may
//     still be applied later. The caller counts on both outcomes until it has read a different
//     revision back, or has fenced the old one by a swap of its own that succeeded.
//   - protocol-7: Guard keeps the highest (registry identity, revision, control change) seen, and
//     refuses a registry that went back: reads are then answered from its Archive. Whatever is
//     about volumes changes only while there is no Notice, which is a condition of each such
//     change. Rewind has what gateways know better, and its Plan brings the registry forward.
//
// Implementations: federation/etcd, and federation/memory with scripted faults. Both pass
// federation/federationtest. All methods may be called from many goroutines. Returned values share
// no memory with the implementation.
package federation
