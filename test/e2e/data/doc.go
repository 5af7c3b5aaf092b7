// SPDX-License-Identifier: Apache-2.0

// Package data tests, on real sites with a real kernel NFS client, what happens to the bytes of
// files: how many of them travel, who can read them, and that files may be larger than pools.
package data
