// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package segment

// invariants enables checks that cost more than the work that they check.
const invariants = true
