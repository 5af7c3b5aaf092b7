// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package segment

// invariants turns on checks that cost more than the work they check.
const invariants = true
