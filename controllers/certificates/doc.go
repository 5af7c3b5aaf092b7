// SPDX-License-Identifier: Apache-2.0

// Package certificates keeps the Secrets of a site whose certificates are generated in its cluster.
//
// One Secret has the federation's authority: ca.crt, ca.key and perhaps trusted.crt. The others
// have one certificate each: ca.crt, tls.crt and tls.key. `weir setup` makes all of them, once with
// each install and upgrade (Issuer.Ensure). The operator renews the certificates (Renewal), for the
// names and hosts that they have, so it needs to know no addresses. It makes no Secret, and changes
// only those that it is configured with and that `weir setup` made, which their label says.
//
// Processes read changed certificates without a restart (package pki), so nothing else is to be
// done.
//
// # When a certificate is renewed
//
// When less than a third of its time is left; when it is not of the authority that the Secret has
// now; and, by `weir setup`, when a host or its name is another. A certificate never outlasts its
// authority, and one that ends together with it is not renewed for its age: the next one would end
// at the same time.
//
// # The authority
//
// It is never replaced by itself: sites of other clusters trust it, and only a person can bring
// them its successor. Renewal says so in time, by an event of its Secret and in the log.
// trusted.crt has further authorities that are trusted but issue nothing, for as long as one takes
// over from another: they are in the ca.crt of all certificates' Secrets, after the one that
// issues.
package certificates
