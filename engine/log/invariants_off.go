// SPDX-License-Identifier: Apache-2.0

//go:build !invariants

package log

// invariants enables checks that cost more than the work that they check.
const invariants = false
