// SPDX-License-Identifier: Apache-2.0

//go:build !race

package engine

// raced says that the race detector runs.
const raced = false
