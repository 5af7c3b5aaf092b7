// SPDX-License-Identifier: Apache-2.0

//go:build race

package replica

// raced says that the race detector runs. Pebble then also checks its own invariants, which do not
// hold after a manifest could not be written: the process would end. So tests in which disks of
// metadata fail at random run without it.
const raced = true
