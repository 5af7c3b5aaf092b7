// SPDX-License-Identifier: Apache-2.0

package cachepool

// Tuning is how the storage below a pool treats a volume. None of it changes what is durable. Only
// pools of ZFS have it. What is empty is as the pool's administrator has it.
type Tuning struct {
	// ARC is what is kept in memory, and L2ARC what on cache devices (primarycache,
	// secondarycache): All, Metadata, which is what ZFS needs to find data, or None.
	ARC, L2ARC string
	// Log is what writes are made fast for (logbias): Latency, on the log devices first, or
	// Throughput, on the data devices at once.
	Log string
	// RecordSize is the size of the records of new files in bytes, a power of two (recordsize).
	RecordSize int
}
