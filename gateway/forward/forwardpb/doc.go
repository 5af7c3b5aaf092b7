// SPDX-License-Identifier: Apache-2.0

// Package forwardpb carries volumes' operations from other sites' gateways to the volume's home,
// and what operators ask of a gateway. Messages, their rules and outcomes are described in
// forward.proto, from
// which the rest of it is generated (make generate); gateway implements the service.
package forwardpb
