// SPDX-License-Identifier: Apache-2.0

// Package nodepb carries what a node's plugin and the CSI controller of a site ask of the site's
// gateway. Messages, their rules and outcomes are described in node.proto, from
// which the rest of it is generated (make generate); gateway implements the service.
package nodepb
