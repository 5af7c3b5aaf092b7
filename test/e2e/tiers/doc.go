// SPDX-License-Identifier: Apache-2.0

// Package tiers has a cluster whose site's pool is ZFS, with a log device and a cache device: what
// the pool says of itself, and policies that are edited while a volume is written and verified. It
// is apart from package installed, so that what zfs-fuse does to one site keeps no other spec.
package tiers
