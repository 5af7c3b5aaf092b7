// SPDX-License-Identifier: Apache-2.0

// Package data tests, on real sites with a real kernel NFS client, what becomes of the bytes: how
// many of them travel, where they may be read, and that files may be larger than pools.
package data
