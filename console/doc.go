// SPDX-License-Identifier: Apache-2.0

// Package console has the web pages of the exchange: the sites of a federation and its volumes,
// offers, agreements and what is used of them, and forms in which people offer, ask, accept and end
// (ADR 38).
//
// It keeps nothing. Each page reads the cluster's API server, and each form writes to it, with the
// token of who is signed in: it is the API server that says who may see and do what. Pages are made
// here, by html/template; there is no script in them, and nothing comes from elsewhere.
//
// # Rules
//
//   - console-1: the console has no rights of its own. Without a token it shows nothing but how to
//     sign in.
//   - console-2: a token stays in memory. The browser has a random name for it, in a cookie that no
//     script and no other site can use, for eight hours at most.
//   - console-3: what changes something is a POST of the same origin.
//   - console-4: what somebody wrote is text, never markup; pages load nothing from anywhere else.
//   - console-5: a form that somebody may not use is not shown, as far as the API server tells; it
//     is refused by the API server all the same.
package console
