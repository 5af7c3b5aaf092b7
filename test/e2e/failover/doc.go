// SPDX-License-Identifier: Apache-2.0

// Package failover tests, on real sites with real kernel NFS clients, that homes and links can be
// lost under load without loss, error or remount.
package failover
