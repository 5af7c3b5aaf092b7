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
// fields is therefore a new N.
//
//	control/<volume>                       Control     one writer: the home, or who takes over (compare-and-swap)
//	volume/<volume>                        Volume      one writer: the owner (compare-and-swap)
//	name/<name>                            volume uuid  written and removed together with volume/<volume>
//	site/<site>                            Site        the site's gateways, each its own entry (merged)
//	gateway/<gateway>                      site name   written together with site/<site>: a gateway is at one site
//	alive/<gateway>                        Alive       the gateway, bound to a lease; the only key that expires
//	admission/<site>/<volume>/<client>     Admission   a person; or for a node, the site's gateway that the node asked
//	attachment/<site>/<volume>/<node>      Attachment  the site's CSI controller
//	claim/<volume>/<site>/<namespace>/<name>  Claim    the site's operator
//	lost/<site>                            Lost        a person
//	keyring/<volume>                       Keyring     who creates the volume, then its home (compare-and-swap)
//	observed/<volume>/<gateway>            Observed    that gateway
//
// # Rules (numbers of protocol.md)
//
//   - 1: Control changes only by compare-and-swap on its revision and is bound to no lease. No
//     number in it goes back: CheckSwap refuses a lower epoch, another home in the same epoch, and
//     a history that does not begin with the history it replaces. Every implementation calls it
//     before it writes.
//   - 3: a swap whose outcome is unknown returns ErrUnknown, never ErrConflict. It may still be
//     applied later. The caller counts on both outcomes until it has read a different revision
//     back, or has fenced the old one by a swap of its own that succeeded.
//   - 7: Guard keeps the highest (registry identity, revision, control change) seen, and refuses
//     swaps on a registry that went back.
//
// Implementations: federation/etcd, and federation/memory with scripted faults. Both pass
// federation/federationtest. All methods may be called from many goroutines. Returned values share
// no memory with the implementation.
package federation
