// SPDX-License-Identifier: Apache-2.0

// Package lending tests, on real sites with gatekeepers and authorities of their own, that
// organizations lend each other room: from the offer to the receipt.
package lending
