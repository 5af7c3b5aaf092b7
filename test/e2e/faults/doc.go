// SPDX-License-Identifier: Apache-2.0

// Package faults tests, on real sites with real kernel NFS clients, many random faults one after
// the other, while programs at two sites write: nothing that was acknowledged is lost at any site,
// no program gets an error, the volume is whole again after each fault, and gateways do not grow.
package faults
