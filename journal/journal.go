// SPDX-License-Identifier: Apache-2.0

// Package journal is the contract between an engine and a replica. The engine is a volume's state
// machine. The replica keeps the volume's log at several gateways.
//
//	engine  ── Journal ──▶  replica    the home's engine appends records and waits for their commit
//	engine  ◀── Machine ──  replica    the replica passes records on, and reports what is committed
//
// The two know nothing else of each other. A write goes down once, through Journal, and its record
// comes back once, through Machine. Package journaltest is the suite that every Journal passes.
//
// # Words
//
// A record is appended when it has its place in the log of the home. It is shown when the home's
// engine answers with it. It is committed when every member of the volume has it on disk. It is
// applied when it is in the engine's store.
//
// # Rules
//
// These rules hold between an engine and its journal. Rules named protocol-N are those of
// docs/concepts.md.
//
//   - journal-1. A record is shown at its home before any other gateway can have it. Machine.Show
//     is that moment. The log calls it while nobody can read or commit the record. So no gateway
//     answers with a change that the home does not answer with yet (protocol-26, ADR 9).
//   - journal-2. Append returns an error only if the record is not in the log and never will be.
//     WaitCommitted reports everything else.
//   - journal-3. Only the goroutine that leads appends, one record at a time. Only the replica
//     writes a follower's log.
//   - journal-4. A machine gets records in the order of the log, each once. Drop removes what was
//     not committed, and only that.
//   - journal-5. When Unlead has returned, no Append of that reign is under way, and none comes.
//
// # Ownership of memory
//
// A Journal keeps nothing of a record after Append has returned. The memory of its blocks belongs
// to the caller again. A Machine keeps the records that it gets, and nobody changes them any more.
package journal

import (
	"context"
	"errors"

	"github.com/weir-storage/weir/engine/segment"
)

// Position is a place in a volume's log.
type Position = segment.Position

// Record is one atomic change.
type Record = segment.Record

// Entry is one frame of a log. Exactly one of Header and Record is set. A header begins a segment;
// it only moves the position.
type Entry struct {
	End    Position // where the frame ends
	Header *segment.Header
	Record *Record
}

// Errors of a Journal, for errors.Is.
var (
	// ErrNotHome reports that this gateway is not the volume's home, or no longer is.
	ErrNotHome = errors.New("this gateway is not the home of the volume")
	// ErrNoLease reports that this gateway may not answer reads from its own copy now.
	ErrNoLease = errors.New("this gateway may not answer reads now")
	// ErrFull reports that the pool has no room for a record that brings data.
	ErrFull = errors.New("no room in the log just now")
)

// Journal is a volume's log as an engine sees it. Any goroutine may call its methods, but only one
// at a time may call Append.
type Journal interface {
	// Ready is called before the critical section in which Append may be. It waits while another
	// copy trails too far, or while much is not committed (protocol-11), so that nobody else waits
	// for the critical section meanwhile. It returns the error of ctx.
	Ready(ctx context.Context) error
	// SealAhead does with the blocks of one record, which have their Pack, what Append would else
	// do with them in the critical section. Nobody changes them until Append has returned. There
	// need not be an Append. It does not wait.
	SealAhead(blocks []segment.Block)
	// Append puts rec at the end of the log. rec has the epoch in which the machine leads. Append
	// sets the Ref of rec's blocks and returns the position at which rec ends. It does not wait for
	// the commit.
	//
	// Errors are ErrNotHome, ErrFull, segment.ErrTooLarge and the error of ctx. Then rec is not in
	// the log, and never will be. If the log does not know whether it has rec, Append returns a
	// position that is not committed in this reign, and the machine is not asked to show rec.
	Append(ctx context.Context, rec *Record) (end Position, err error)
	// WaitCommitted returns nil when everything up to pos is committed. With any error the outcome
	// is not known here. The errors are ErrNotHome, because the reign ended, and the error of ctx.
	// A caller that waits after the reign in which pos was appended may get nil for another record
	// that ends there.
	WaitCommitted(ctx context.Context, pos Position) error
	// WaitKnown returns nil when all who answer reads without a vote, under leases, know of all up
	// to pos, or their leases have ended (protocol-26). Who shows or acknowledges something before
	// its commit calls it first. Errors are those of WaitCommitted.
	WaitKnown(ctx context.Context, pos Position) error
	// WaitRoom is called outside any critical section after Append returned ErrFull. It returns nil
	// when Append may be tried again, or when this gateway is no longer the home. It returns an
	// error that wraps ErrFull when waiting is of no use.
	WaitRoom(ctx context.Context) error
	// MayServe returns nil if an answer that was read just now may be given (protocol-4). A home
	// may answer under the promises of all members, a member under its lease. Errors: ErrNotHome,
	// ErrNoLease.
	MayServe() error
	// Bounded is for volumes whose readers may be shown an earlier state, of limited age. It
	// returns a position that the machine has applied, at or before which lies all that was
	// acknowledged up to that age ago: what is read from a state that has it may be answered
	// (protocol-26). false: this volume has no such readers, this gateway is its home, or it does
	// not know.
	Bounded() (pos Position, ok bool)
	// ReadBlocks returns the plaintext of blocks, verified. What cannot be read or verified is an
	// error, never zeros (protocol-19). The caller owns the slices, and their memory up to their
	// capacity.
	ReadBlocks(ctx context.Context, refs []segment.BlockRef) ([][]byte, error)
}

// Machine is the state machine to which a log's records are applied. The replica calls it from one
// goroutine at a time. The exceptions are Show, which runs inside Append, and Lead, which may run
// at the same time as Committed.
type Machine interface {
	Follower
	Leader
}

// Follower is the half of a Machine that receives what others append.
type Follower interface {
	// Ingest queues records in the order of the log until they are committed. After an error the
	// rest of entries is not queued.
	Ingest(entries []Entry) error
	// Behind reports that much of what is committed is not applied yet. Whoever has more for Ingest
	// then brings it later, so that what is queued fits in memory. It does not wait.
	Behind() bool
	// Committed reports that everything up to pos is committed. It does not wait.
	Committed(pos Position)
	// Drop forgets the queued records that end after pos, where the log was cut. It fails if one of
	// them is applied or committed.
	Drop(pos Position) error
	// Applied returns the position up to which records can no longer be dropped.
	Applied() Position
	// Persist makes what is applied up to pos durable, if it is not yet, and returns up to where it
	// is. A machine that starts again needs the records after it. Several goroutines may call it.
	Persist(pos Position) (Position, error)
}

// Leader is the half of a Machine that acts as the home.
type Leader interface {
	// Lead makes the machine execute changes in epoch. It waits until everything before is applied.
	// If ctx ends first, Lead fails.
	Lead(ctx context.Context, epoch uint64) error
	// Unlead ends what Lead began (journal-5). It waits for an Append that is under way.
	Unlead()
	// Show makes a record that this machine is appending visible, once (journal-1). The log calls
	// it with the record in its final form: whoever reads the record's blocks after Show began
	// finds them. Show does not wait, and calls neither the Journal nor the log.
	Show(rec *Record, end Position)
}
