// SPDX-License-Identifier: Apache-2.0

// Package failover tests, on real sites with real kernel NFS clients, the loss of homes and links
// under load: nothing is lost, no program gets an error, and no client mounts again.
package failover
