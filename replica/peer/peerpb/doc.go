// SPDX-License-Identifier: Apache-2.0

// Package peerpb carries what gateways say to each other about volumes: protocol messages and
// frames of the log. Messages, their rules and outcomes are described in peer.proto, from
// which the rest of it is generated (make generate); replica/peer implements the service.
package peerpb
