// SPDX-License-Identifier: Apache-2.0

// Package rates tests what compares rates, on real sites with real kernel NFS clients. It runs
// alone: what else a machine does would make one rate slower, and not the other.
package rates
