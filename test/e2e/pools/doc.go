// SPDX-License-Identifier: Apache-2.0

// Package pools breaks the devices of pools of ZFS below gateways that are in use: what is
// acknowledged is there, clients go on, and the pool says what happened.
package pools
