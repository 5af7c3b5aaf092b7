// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

func wantOutcome(t testing.TB, what string, err, want error) {
	t.Helper()
	if !sameOutcome(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// sameOutcome reports whether two errors wrap the same outcome, or are both nil.
func sameOutcome(a, b error) bool {
	oa, ob := outcomeOf(a), outcomeOf(b)
	if oa == nil || ob == nil {
		return a == nil && b == nil
	}
	return errors.Is(oa, ob)
}

// ended returns a context that has ended. An operation that must wait fails with it, and one that
// need not wait succeeds.
func ended() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 0)
}

// TestUncommittedIsNotRevealed holds commits back (protocol-2). Every call that would reveal a
// change must then wait: it must not return before the commit.
func TestUncommittedIsNotRevealed(t *testing.T) {
	h := newHost(t, nil)
	ctx := t.Context()
	old := newFile(t, h, volume.Root, "old")
	other := newFile(t, h, volume.Root, "other")
	dir, err := h.Create(ctx, asRoot, volume.Root, "dir", volume.CreateArgs{Type: volume.Directory, Mode: volume.Guarded})
	if err != nil {
		t.Fatal(err)
	}
	h.journal.holdCommits()
	made := make(chan error, 2)
	go func() {
		_, err := h.Create(ctx, asRoot, dir.Attr.Handle, "new", volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
		made <- err
	}()
	go func() {
		mode := uint32(0o600)
		_, err := h.SetAttr(ctx, asRoot, old, volume.SetAttr{Mode: &mode})
		made <- err
	}()
	waitFor(func() bool { return records(h) >= 6 })
	type call struct {
		name string
		do   func(ctx context.Context) error
		want error // once the change is committed
	}
	waiting := []call{
		{"lookup of a new name", func(ctx context.Context) error {
			_, err := h.Lookup(ctx, asRoot, dir.Attr.Handle, "new")
			return err
		}, nil},
		{"lookup of no name", func(ctx context.Context) error {
			_, err := h.Lookup(ctx, asRoot, dir.Attr.Handle, "none")
			return err
		}, volume.ErrNotExist},
		{"listing", func(ctx context.Context) error {
			_, _, err := h.ReadDir(ctx, asRoot, dir.Attr.Handle, 0, 10)
			return err
		}, nil},
		{"attributes", func(ctx context.Context) error { _, err := h.GetAttr(ctx, asRoot, old); return err }, nil},
		{"listing with changed attributes", func(ctx context.Context) error {
			_, _, err := h.ReadDir(ctx, asRoot, volume.Root, 0, 10)
			return err
		}, nil},
		{"create of a new name", func(ctx context.Context) error {
			_, err := h.Create(ctx, asRoot, dir.Attr.Handle, "new", volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
			return err
		}, volume.ErrExist},
		{"remove of a directory with a new name", func(ctx context.Context) error {
			_, err := h.Remove(ctx, asRoot, volume.Root, "dir")
			return err
		}, volume.ErrNotEmpty},
	}
	results := make([]chan error, len(waiting))
	for i, c := range waiting {
		results[i] = make(chan error, 1)
		go func() { results[i] <- c.do(ctx) }()
	}
	for _, c := range []call{
		{"attributes of another file", func(ctx context.Context) error { _, err := h.GetAttr(ctx, asRoot, other); return err }, nil},
		{"unstable write", func(ctx context.Context) error {
			_, err := h.Write(ctx, asRoot, other, 0, []byte("data"), false)
			return err
		}, nil},
		{"read of unstable data", func(ctx context.Context) error {
			p := make([]byte, 10)
			n, _, err := h.Read(ctx, asRoot, other, 0, p)
			if err == nil && string(p[:n]) != "data" {
				t.Errorf("unstable data reads as %q", p[:n])
			}
			return err
		}, nil},
	} {
		if err := c.do(ctx); err != nil { // hangs if it waits
			t.Errorf("%s: %v", c.name, err)
		}
	}
	ctx2, cancel := context.WithCancel(ctx)
	late := make(chan error, 1)
	go func() { _, err := h.Commit(ctx2, asRoot, other); late <- err }()
	cancel()
	wantOutcome(t, "commit that is given up", <-late, volume.ErrDelay)
	for i, c := range waiting {
		select {
		case err := <-results[i]:
			t.Errorf("%s did not wait for the commit: %v", c.name, err)
		default:
		}
	}
	h.journal.release()
	for i, c := range waiting {
		wantOutcome(t, c.name, <-results[i], c.want)
	}
	for range 2 {
		if err := <-made; err != nil {
			t.Error(err)
		}
	}
}

// TestGivenUp ends the context of operations at each point where they can wait.
func TestGivenUp(t *testing.T) {
	h := newHost(t, nil)
	ctx, cancel := ended()
	defer cancel()
	before := records(h)
	_, err := h.Create(ctx, asRoot, volume.Root, "f", volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
	wantOutcome(t, "create that did not begin", err, volume.ErrDelay)
	if records(h) != before {
		t.Error("it made a record")
	}
	h.journal.holdCommits()
	ctx2, cancel2 := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := h.Create(ctx2, asRoot, volume.Root, "f", volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
		result <- err
	}()
	waitFor(func() bool { return records(h) > before })
	cancel2()
	wantOutcome(t, "create whose commit is not known", <-result, volume.ErrUnknown)
	h.journal.release()
}

// TestNotHome asks a follower for a change, and asks a home whose promises expired for a read.
func TestNotHome(t *testing.T) {
	h := newHost(t, nil)
	f := newFile(t, h, volume.Root, "f")
	h.journal.mu.Lock()
	h.journal.mayServe = volume.ErrDelay
	h.journal.mu.Unlock()
	_, err := h.GetAttr(t.Context(), asRoot, f)
	wantOutcome(t, "read without a promise", err, volume.ErrDelay)
	_, err = h.GetAttr(t.Context(), asRoot, volume.Handle{Ino: 99})
	wantOutcome(t, "failing read without a promise", err, volume.ErrDelay)
	// The same holds for changes that change nothing, since their outcome reveals the state. A
	// change that has a record needs no promise, since its commit proves enough.
	guarded := volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded}
	_, err = h.Create(t.Context(), asRoot, volume.Root, "f", guarded)
	wantOutcome(t, "create of what exists, without a promise", err, volume.ErrDelay)
	_, err = h.Remove(t.Context(), asRoot, volume.Root, "none")
	wantOutcome(t, "remove of what does not exist, without a promise", err, volume.ErrDelay)
	_, err = h.Create(t.Context(), asRoot, volume.Root, "f", volume.CreateArgs{Type: volume.Regular, Mode: volume.Unchecked})
	wantOutcome(t, "create that finds the file, without a promise", err, volume.ErrDelay)
	waiting, cancel := context.WithCancel(t.Context())
	h.journal.asked = func() { h.journal.asked = cancel } // it asks again
	_, err = h.Write(waiting, asRoot, f, 0, []byte("x"), false)
	h.journal.asked = nil
	wantOutcome(t, "unstable write without a promise", err, volume.ErrUnknown)
	_, err = h.Write(t.Context(), asRoot, f, 0, []byte("y"), true)
	wantOutcome(t, "stable write without a promise", err, nil)
	h.journal.mu.Lock()
	h.journal.mayServe = nil
	h.journal.mu.Unlock()
	h.journal.setHome(false)
	_, err = h.Write(t.Context(), asRoot, f, 0, []byte("x"), true)
	if !errors.Is(err, journal.ErrNotHome) {
		t.Errorf("write that the journal refused: %v", err)
	}
	h.Unlead()
	for name, err := range map[string]error{
		"write":  second(h.Write(t.Context(), asRoot, f, 0, []byte("x"), true)),
		"commit": second(h.Commit(t.Context(), asRoot, f)),
		"remove": second(h.Remove(t.Context(), asRoot, volume.Root, "f")),
		"reap":   h.reapOne(f),
	} {
		if !errors.Is(err, journal.ErrNotHome) || !sameOutcome(err, volume.ErrDelay) {
			t.Errorf("%s at a follower: %v", name, err)
		}
	}
	if err := h.Lead(t.Context(), h.epoch); err == nil {
		t.Error("led twice in one epoch")
	}
	if err := h.Lead(t.Context(), 1<<24); err == nil {
		t.Error("led in an epoch that inode numbers have no room for")
	}
	h.lead()
	if _, err = h.Write(t.Context(), asRoot, f, 0, []byte("x"), true); err != nil {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

func (e *Engine) reapOne(h volume.Handle) error {
	_, err := e.reap(context.Background(), []volume.Handle{h})
	return err
}

// TestFollower feeds a second engine from a home's log.
func TestFollower(t *testing.T) {
	h := newHost(t, nil)
	ctx := t.Context()
	follower := openEngine(t, vfs.NewMem(), h.journal, nil)
	defer func() {
		if err := follower.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, err := follower.GetAttr(ctx, asRoot, volume.Root)
	wantOutcome(t, "root of a volume that was never heard of", err, volume.ErrDelay)
	feed := func() segment.Position {
		t.Helper()
		entries, _ := h.journal.after(follower.lastEnd())
		if err := follower.Ingest(entries); err != nil {
			t.Fatal(err)
		}
		return follower.lastEnd()
	}
	f := newFile(t, h, volume.Root, "f")
	if _, err := h.Write(ctx, asRoot, f, 100, []byte("content"), true); err != nil {
		t.Fatal(err)
	}
	end := feed()
	// The follower has the records and does not know that they are committed. So reads wait.
	results := make(chan error, 4)
	reads := map[string]func() error{
		"getattr": func() error { return second(follower.GetAttr(ctx, asRoot, volume.Root)) },
		"lookup":  func() error { return second(follower.Lookup(ctx, asRoot, volume.Root, "f")) },
		"readdir": func() error { _, _, err := follower.ReadDir(ctx, asRoot, volume.Root, 0, 9); return err },
		"read":    func() error { _, _, err := follower.Read(ctx, asRoot, f, 0, make([]byte, 9)); return err },
	}
	for _, do := range reads {
		go func() { results <- do() }()
	}
	short, cancel := ended()
	defer cancel()
	wantOutcome(t, "read that is given up", second(follower.GetAttr(short, asRoot, volume.Root)), volume.ErrDelay)
	if len(results) > 0 {
		t.Errorf("a follower answered from records that are not committed: %v", <-results)
	}
	follower.Committed(end)
	for range reads {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if got, want := picture(t, follower), picture(t, h); got != want {
		t.Errorf("follower:\n%s\nhome:\n%s", got, want)
	}
	// What was cut off is forgotten, and reads that wait for it are answered.
	h.journal.holdCommits()
	go func() { _, _ = h.Remove(context.Background(), asRoot, volume.Root, "f") }()
	waitFor(func() bool { e, _ := h.journal.after(end); return len(e) > 0 })
	feed()
	go func() { results <- second(follower.Lookup(ctx, asRoot, volume.Root, "f")) }()
	if err := follower.Drop(end); err != nil {
		t.Fatal(err)
	}
	if err := <-results; err != nil {
		t.Errorf("lookup of a name whose removal was cut off: %v", err)
	}
	if err := follower.Drop(segment.Position{Seq: 1, Off: 1}); err == nil {
		t.Error("dropped what is applied")
	}
	if err := follower.Ingest([]journal.Entry{{Record: &segment.Record{}, End: end}}); err == nil {
		t.Error("ingested a record twice")
	}
	h.journal.release()
	feed()
	follower.Committed(follower.lastEnd())
	wantOutcome(t, "lookup of a removed name", second(follower.Lookup(ctx, asRoot, volume.Root, "f")), volume.ErrNotExist)
}

// TestVerifier checks protocol-24 over a lost role. It also checks that a repeat of a write after a
// takeover gets the first result.
func TestVerifier(t *testing.T) {
	h := newHost(t, nil)
	f := newFile(t, h, volume.Root, "f")
	r := volume.Request{ID: volume.OpID{Slot: "s", Seq: 1}}
	first, err := h.Write(t.Context(), r, f, 0, []byte("x"), false)
	if err != nil {
		t.Fatal(err)
	}
	h.journal.setHome(false)
	h.Unlead()
	h.lead()
	verifier, err := h.Commit(t.Context(), asRoot, f)
	if err != nil || verifier == first.Verifier {
		t.Errorf("verifier after a takeover is %x, %v; was %x", verifier, err, first.Verifier)
	}
	again, err := h.Write(t.Context(), r, f, 0, []byte("x"), false)
	if err != nil || again != first {
		t.Errorf("repeat: %+v, %v; first %+v", again, err, first)
	}
}

// TestHeldElsewhere checks that an orphan lives while a client of another gateway may hold it.
func TestHeldElsewhere(t *testing.T) {
	held := true
	h := newHost(t, func(c *Config) { c.MayBeHeld = func(volume.Handle) bool { return held } })
	ctx := t.Context()
	f := newFile(t, h, volume.Root, "f")
	if _, err := h.Write(ctx, asRoot, f, 0, []byte("data"), true); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Remove(ctx, asRoot, volume.Root, "f"); err != nil {
		t.Fatal(err)
	}
	asked := 0
	ask := func(_ context.Context, hs []volume.Handle) ([]volume.Handle, error) {
		asked += len(hs)
		return hs, nil
	}
	for range 2 {
		if n, err := h.Reap(ctx, nil); n != 0 || err != nil {
			t.Fatalf("reaped %d, %v, though another gateway may hold it", n, err)
		}
	}
	held = false
	if n, err := h.Reap(ctx, ask); n != 0 || err != nil || asked != 1 {
		t.Fatalf("reaped %d, %v, asked for %d, though another gateway said that it holds it", n, err, asked)
	}
	held = true
	_, err := h.GetAttr(ctx, asRoot, f)
	wantOutcome(t, "orphan, for who does not hold it", err, volume.ErrStale)
	if err := h.HoldElsewhere(f); err != nil {
		t.Fatal(err)
	}
	if a, err := h.GetAttr(ctx, asRoot, f); err != nil || a.Nlink != 0 || a.Size != 4 {
		t.Fatalf("orphan, for who holds it, is %+v, %v", a, err)
	}
	h.Release(f)
	h.crash()
	held = false
	if n, err := h.Reap(ctx, nil); n != 1 || err != nil {
		t.Fatalf("reaped %d, %v", n, err)
	}
	_, err = h.GetAttr(ctx, asRoot, f)
	wantOutcome(t, "reaped", err, volume.ErrStale)
	if s, err := h.Space(ctx); err != nil || s.TotalBytes != s.FreeBytes || s.TotalInodes-s.FreeInodes != 1 {
		t.Errorf("space afterwards is %+v, %v", s, err)
	}
	if left := keysOf(t, h.Engine); left != "accounting inode" {
		t.Errorf("tables afterwards: %s", left)
	}
}

// TestForget checks that the results of a slot go, and only those.
func TestForget(t *testing.T) {
	h := newHost(t, nil)
	for _, slot := range []string{"client 1/a", "client 1/b", "client 2/a"} {
		r := volume.Request{ID: volume.OpID{Slot: slot, Seq: 1}}
		for range 2 {
			_, err := h.Create(t.Context(), r, volume.Root, slot[:8]+slot[9:], volume.CreateArgs{Type: volume.FIFO, Mode: volume.Guarded})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := h.Forget(t.Context(), "client 1/"); err != nil {
		t.Fatal(err)
	}
	before := records(h)
	if err := h.Forget(t.Context(), "client 1/"); err != nil || records(h) != before {
		t.Errorf("forgetting nothing made %d records, %v", records(h)-before, err)
	}
	for slot, want := range map[string]error{"client 1/a": volume.ErrExist, "client 1/b": volume.ErrExist, "client 2/a": nil} {
		r := volume.Request{ID: volume.OpID{Slot: slot, Seq: 1}}
		_, err := h.Create(t.Context(), r, volume.Root, slot[:8]+slot[9:], volume.CreateArgs{Type: volume.FIFO, Mode: volume.Guarded})
		wantOutcome(t, slot, err, want)
	}
}

// TestPositionUsedAgain loses and regains the role between an operation's look at the volume and
// its wait for the commit. What the operation did or saw was cut off, and another record ends at
// its position by then.
func TestPositionUsedAgain(t *testing.T) {
	for _, name := range []string{"change", "read"} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			h.journal.holdCommits()
			create := func(ctx context.Context, name string) error {
				args := volume.CreateArgs{Type: volume.FIFO, Mode: volume.Guarded}
				return second(h.Create(ctx, asRoot, volume.Root, name, args))
			}
			swap := func() {
				h.journal.setHome(false)
				h.Unlead()
				h.journal.truncate()
				h.journal.mu.Lock()
				end := h.journal.end()
				h.journal.hold = false
				h.journal.mu.Unlock()
				if err := h.Drop(end); err != nil {
					t.Error(err)
				}
				h.lead()
				for _, other := range []string{"x", "y", "z"} {
					if err := create(t.Context(), other); err != nil {
						t.Error(err)
					}
				}
			}
			setHook := func() {
				h.journal.mu.Lock()
				defer h.journal.mu.Unlock()
				h.journal.beforeWait = swap
			}
			if name == "change" {
				setHook()
				wantOutcome(t, "change that was cut off", create(t.Context(), "f"), volume.ErrUnknown)
				return
			}
			waits := func() int {
				h.journal.mu.Lock()
				defer h.journal.mu.Unlock()
				return h.journal.waits
			}
			before := waits()
			result := make(chan error, 1)
			go func() { result <- create(context.Background(), "f") }()
			waitFor(func() bool { return waits() > before })
			setHook()
			wantOutcome(t, "read of what was cut off", second(h.Lookup(t.Context(), asRoot, volume.Root, "f")), volume.ErrDelay)
			wantOutcome(t, "change that was cut off", <-result, volume.ErrUnknown)
		})
	}
}
