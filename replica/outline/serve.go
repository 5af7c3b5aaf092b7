// SPDX-License-Identifier: Apache-2.0

package outline

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica/peer/peerpb"
	"github.com/weir-storage/weir/replica/protocol"
)

// Position is a place in a volume's log.
type Position = journal.Position

// Replica is the part of *replica.Replica that a home's outline is sent by.
type Replica interface {
	// Leading returns the epoch in which this gateway is home.
	Leading() (epoch uint64, ok bool)
	// Committed returns up to where the log is committed. The channel is closed when it may be
	// further, or the reign may have ended.
	Committed() (pos Position, moved <-chan struct{})
	MayServe() error
	// Reading notes how far a gateway knows that the log reaches, and how often its clients read.
	Reading(protocol.Reading)
	// Loan returns the newest loan to a gateway whose lease lasts.
	Loan(gateway string) (protocol.Lend, bool)
}

// Home is a volume at its home. Done must be called after its use.
type Home struct {
	Log     *log.Log
	Replica Replica
	Done    func()
}

// Server sends the logs of volumes whose home is here.
type Server struct {
	peerpb.UnimplementedOutlinesServer
	// Caller returns the gateway that a call comes from, by its certificate.
	Caller func(ctx context.Context) (gateway string, err error)
	// Uses reports whether a gateway's site may use a volume.
	Uses func(volume, gateway string) bool
	// Open returns a volume whose copy is open here, and a context that ends when it closes.
	Open func(ctx context.Context, volume string) (context.Context, Home, error)
}

const (
	// batch is about how many bytes of the log are read for one message.
	batch = 1 << 20
	// maxAsked is how many questions of a follower may wait for their answer, and how many ends of
	// the log that it was told of it may answer.
	maxAsked = 64
)

// errOver tells a follower that it must look for the home again.
var errOver = status.Error(codes.FailedPrecondition, "this gateway is not the home of the volume: ask its home")

// errOther tells a follower that its log is not the home's.
var errOther = status.Error(codes.OutOfRange, "what the follower has is not of this log: it must begin anew")

// Follow implements the service.
func (s *Server) Follow(stream peerpb.Outlines_FollowServer) error {
	from, err := s.Caller(stream.Context())
	if err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	uses := func() bool { return s.Uses(first.GetVolume(), from) }
	if !uses() {
		return status.Errorf(codes.PermissionDenied, "volume %s: the site of gateway %s has no client that is admitted to it, as far as "+
			"is known here", first.GetVolume(), from)
	}
	ctx, home, err := s.Open(stream.Context(), first.GetVolume())
	if err != nil {
		return errOver
	}
	defer home.Done()
	f := &follower{Home: home, gateway: from, uses: uses, asked: make(chan struct{}, 1)}
	f.send = func(ctx context.Context, r *peerpb.FollowReply) error {
		sent := make(chan error, 1)
		go func() { sent <- stream.Send(r) }() // it waits for the follower, and ends with the stream
		select {
		case err := <-sent:
			return err
		case <-ctx.Done(): // the copy closes
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	var ok bool
	if f.epoch, ok = home.Replica.Leading(); !ok {
		return errOver
	}
	f.lent, _ = home.Replica.Loan(from) // an earlier stream brought it
	f.next = Position{Seq: first.GetAfter().GetSeq(), Off: first.GetAfter().GetOff()}
	if !f.has(first.GetSalt()) || f.next.Less(f.Log.Base()) {
		return errOther
	}
	f.ask(first)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with the stream
		defer cancel()
		for {
			q, err := stream.Recv()
			if err != nil {
				return
			}
			f.ask(q)
		}
	}()
	return f.run(ctx)
}

// follower is one that is sent a log.
type follower struct {
	Home
	gateway string
	uses    func() bool
	epoch   uint64
	next    Position // what lies before it was sent
	lent    protocol.Lend
	send    func(context.Context, *peerpb.FollowReply) error

	asked  chan struct{} // buffer of one: something was asked
	mu     sync.Mutex
	told   []Position // of which it was told, ascending; those before one that it knows are forgotten
	claims []claim
}

// claim: all that was acknowledged at a time lies before a position.
type claim struct {
	stamp int64
	pos   Position
}

// has reports whether the follower's log is the beginning of this one. salt is that of the segment
// in which it ends. A segment with the same salt is the same, and so is all before it.
func (f *follower) has(salt []byte) bool {
	if f.next == (Position{}) {
		return true
	}
	h, ok := f.Log.HeaderOf(f.next.Seq)
	return ok && string(h.Salt[:]) == string(salt) && f.Log.Has(f.next)
}

// ask notes a question, if it can be answered (outline-2), and what the follower knows (outline-6).
func (f *follower) ask(q *peerpb.FollowRequest) {
	if q.GetReads() > 0 || q.GetKnown() != nil {
		known := f.knows(Position{Seq: q.GetKnown().GetSeq(), Off: q.GetKnown().GetOff()})
		f.Replica.Reading(protocol.Reading{Gateway: f.gateway, Epoch: f.epoch, Known: known, Stamp: time.Duration(q.GetSent()),
			Reads: int(min(max(q.GetReads(), 0), 1<<20))})
	}
	if q.GetStamp() != 0 && f.Replica.MayServe() == nil {
		end := f.Log.End() // after MayServe
		f.mu.Lock()
		if len(f.claims) < maxAsked {
			f.claims = append(f.claims, claim{q.GetStamp(), end})
		}
		f.mu.Unlock()
		if q.GetWaits() {
			f.Log.Sync(end)
		}
	}
	select {
	case f.asked <- struct{}{}:
	default:
	}
}

// knows returns pos if the follower was told of it on this stream, else nothing: it may say what it
// likes, and only ends of records may be committed.
func (f *follower) knows(pos Position) Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, ok := slices.BinarySearchFunc(f.told, pos, Position.Compare)
	if !ok {
		return Position{}
	}
	f.told = f.told[i:]
	return pos
}

// due returns the newest question that is answered by what was sent; 0: none.
func (f *follower) due() (stamp int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.claims) > 0 && !f.next.Less(f.claims[0].pos) {
		stamp = f.claims[0].stamp
		f.claims = f.claims[1:]
	}
	return stamp
}

// run sends until the reign ends, or the follower may not use the volume any more.
func (f *follower) run(ctx context.Context) error {
	for {
		commit, moved := f.Replica.Committed()
		if epoch, ok := f.Replica.Leading(); !ok || epoch != f.epoch {
			return errOver
		}
		if !f.uses() {
			return status.Error(codes.PermissionDenied, "the follower's site has no client that is admitted to the volume any more")
		}
		if err := f.lend(ctx); err != nil {
			return err
		}
		for f.next.Less(commit) {
			if err := f.some(ctx, commit); err != nil {
				return err
			}
			if err := f.lend(ctx); err != nil {
				return err
			}
		}
		if stamp := f.due(); stamp != 0 {
			if err := f.send(ctx, &peerpb.FollowReply{Stamp: stamp}); err != nil {
				return err
			}
		}
		select {
		case <-moved:
		case <-f.asked:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// lend sends a new lease, and while one lasts, how far the log reaches, before all else: changes
// wait until the follower knows that (outline-6).
func (f *follower) lend(ctx context.Context) error {
	l, ok := f.Replica.Loan(f.gateway)
	if !ok || l.Epoch != f.epoch {
		return nil
	}
	r := new(peerpb.FollowReply)
	end := f.Log.End()
	if l != f.lent {
		f.lent, r.Grant, r.Echo = l, int64(l.Grant), int64(l.Echo)
		f.tells(end)
	} else if !f.tells(end) {
		return nil
	}
	r.End = &peerpb.Position{Seq: end.Seq, Off: end.Off}
	return f.send(ctx, r)
}

// tells notes that the follower is told of end; false: it was. What it is told last it can always
// answer.
func (f *follower) tells(end Position) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.told)
	if n > 0 && !f.told[n-1].Less(end) {
		return false
	}
	f.told = append(f.told[n-min(n, maxAsked-1):], end)
	return true
}

// some sends some frames.
func (f *follower) some(ctx context.Context, commit Position) error {
	frames, _, err := f.Log.Read(ctx, f.next, batch)
	if err != nil && !errors.Is(err, io.EOF) {
		return status.Errorf(codes.Unavailable, "read the log: %v", err)
	}
	out, next, err := log.Frames(frames, f.next, commit)
	if err == nil && len(out) == 0 {
		err = errors.New("no whole frame lies before what is committed")
	}
	if err != nil {
		return status.Errorf(codes.Internal, "outline of the log: %v", err)
	}
	f.next = next
	return f.send(ctx, &peerpb.FollowReply{Frames: out, Stamp: f.due()})
}
