// SPDX-License-Identifier: Apache-2.0

package federation

// Record is one key of the registry as an archive keeps it.
type Record struct {
	Key   string // relative to the federation's prefix
	Value []byte // encoded; nil if Deleted
	// Revision is that of the last change, as the gateway sees it (Guard.Offset).
	Revision Revision
	Deleted  bool
}

// Archive is a gateway's durable copy of the registry's records (protocol-7). Changes are durable
// when the methods return. They may be called from many goroutines.
type Archive interface {
	// Get returns the record of a key; false: the archive never had it. A record that was deleted
	// is returned as such.
	Get(key string) (Record, bool, error)
	// List returns all records below a prefix in order of their keys, also deleted ones.
	List(prefix string) ([]Record, error)
	// Put keeps records, but none that is not newer than what is kept of its key.
	Put(records []Record) error
	// Replace forgets everything and keeps records.
	Replace(records []Record) error
}
