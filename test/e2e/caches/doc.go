// SPDX-License-Identifier: Apache-2.0

// Package caches tests sites that use a volume and have no copy of it, behind a link like those
// between institutions: 20 ms there and back, 200 Mbit/s. What passes the link is what the kernel
// counts.
package caches
