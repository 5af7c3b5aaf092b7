// SPDX-License-Identifier: Apache-2.0

// Package gatekeeper stands between the processes of a federation and one member of its registry
// (ADR 25). It speaks so much of etcd's protocol as package federation/etcd uses, and authorizes
// each change by what it says, by what it replaces, and by who asks, which a certificate says.
//
// # Rules
//
//   - gatekeeper-1: only gateways, operators, CSI controllers, stores, persons and administrators
//     read.
//     Nobody reads or writes outside of the federation's keys. A change is refused if any write
//     of it is.
//   - gatekeeper-2: a volume's record is its owner's: of the operator at the cluster that owns
//     it, or of a person of the owner. It is made together with its name and its keyring. Others
//     change nothing of it, but for a gateway that sets when a deleted volume is purged, where
//     nobody did. Sites that it names anew are registered, and take copies of the owner's volumes
//     (federation.Site.Takes).
//   - gatekeeper-3: a control record is made by the gateway of the volume's first site, for
//     itself. In an epoch only the home changes it. The next epoch is taken by a member for
//     itself, which leaves out the former home at most, or by force by a gateway that may have a
//     copy, with the word of a person of the owner. Members that come in are registered gateways
//     of sites which the volume's record names, or, at a home whose copy is blind, of sites of the
//     owner's organization that have the newest data key. Change and trail follow the record
//     before (federation.Control.Succeed), and federation.CheckSwap holds.
//   - gatekeeper-4: a keyring grows by the hand of a home whose site has the newest data key. It
//     adds wraps and changes none, and adds none for sites whose copies are blind; the owner may
//     replace it.
//   - gatekeeper-5: a site's record is that site's, and its organization never changes. A gateway
//     changes its own entry, an operator cluster, region and labels. A gateway's name is one
//     site's. What is a gateway's (heartbeat, observed state, notice, testimony, canary) is
//     written by it.
//   - gatekeeper-6: an admission, an attachment and a claim of a site are written there, and
//     allow no more than the owner: all at its own sites, and elsewhere what a grant of the
//     volume's record says. A client that is no node is admitted by a person of the owner, at any
//     site. Who may write one may delete it, and so may the site's organization, the owner, and a
//     gateway when the volume was purged.
//   - gatekeeper-7: a site is declared lost, found or removed by a person of its organization, or
//     by an administrator.
//   - gatekeeper-8: gateways purge a deleted volume when its time is over, by this machine's
//     clock, and take themselves away from a purge.
//   - gatekeeper-9: an administrator removes what an organization that is gone has left: its
//     sites, gateways, admissions, attachments and claims. He writes no volume's record, but any
//     record while a gateway says that the registry went back (protocol-7).
//   - gatekeeper-10: the charter is put there by an administrator, signed by the founding
//     authority, with a higher serial than the one before it. A gatekeeper follows it, and does not
//     listen before it has read it.
//   - gatekeeper-11: a value has its writer's signature (package signed) if the charter asks for
//     one, and if it has one, it is the asker's. A gateway puts back what somebody else signed
//     where what is there can not follow it, or was deleted although its volume was not purged;
//     and takes away a notice that does not count. An administrator signs what has no signature,
//     as it is.
//   - gatekeeper-12: if the charter says so, an organization is shown only volumes that concern it
//     (package shown): of others what planners need, and no name, no record and nobody who uses
//     them. Administrators are shown everything. Sites that had a copy stay in a volume's record,
//     so that they are shown that they are to have none.
//   - gatekeeper-13: a paper of the exchange is written by who speaks for its organization, as the
//     rules of package federation/paper say, by this machine's clock. A request, its answer, and
//     what is counted are shown to guest and host only, if the charter hides anything.
//
// What a change is judged by is a condition of it, so what was true then is true when it is
// applied. A gatekeeper keeps nothing that etcd has not, and any number may be there. Its methods
// may be called from many goroutines.
package gatekeeper
