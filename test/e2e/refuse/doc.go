// SPDX-License-Identifier: Apache-2.0

// Package refuse tests, on real sites, what a person is told who does something wrong, or when a
// part is down: the message names the field, the value and the remedy, and nothing that was
// acknowledged is lost by it.
package refuse
