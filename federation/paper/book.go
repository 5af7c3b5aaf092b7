// SPDX-License-Identifier: Apache-2.0

package paper

import "context"

// At is a paper as a registry has it.
type At struct {
	Paper
	// Revision is the registry's; in a change, that of the paper which is replaced, 0: there is
	// none.
	Revision int64
	// Value is the record with its writer's signature, for who keeps it. It is not written.
	Value []byte
}

// Book is the part of a federation.Registry that has papers. Errors are as there.
type Book interface {
	// PutPapers writes papers together, or none of them. ErrConflict: one has another revision.
	PutPapers(ctx context.Context, all ...At) error
	// DeletePaper removes the paper that has revision prev. ErrConflict.
	DeletePaper(ctx context.Context, name string, prev int64) error
	// GetPaper returns ErrNotFound when there is none, or this organization is not shown it.
	GetPaper(ctx context.Context, name string) (At, error)
	// ListPapers returns those whose names begin with a prefix, such as "offer/", by name.
	ListPapers(ctx context.Context, prefix string) ([]At, error)
}
