// SPDX-License-Identifier: Apache-2.0

// Package refuse tests, on real sites, the messages for wrong input and for parts that are down. A
// message names field, value and remedy, and nothing that was acknowledged is lost.
package refuse
