// SPDX-License-Identifier: Apache-2.0

//go:build !race

package replica

// raced says that the race detector runs.
const raced = false
