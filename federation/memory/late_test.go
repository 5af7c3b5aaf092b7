// SPDX-License-Identifier: Apache-2.0

package memory_test

import (
	"errors"
	"testing"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/federationtest"
	"github.com/weir-storage/weir/federation/memory"
)

// during is an archive that does something else before it answers.
type during struct {
	federation.Archive
	then func()
}

func (d *during) Put(records []federation.Record) error {
	err := d.Archive.Put(records)
	if d.then != nil {
		d.then()
	}
	return err
}

// A gateway that refused the registry while it waited for the answer to a swap does not know what
// became of that. So it reads the record again, and goes on from what its archive has.
func TestLateAnswerIsUnknown(t *testing.T) {
	archive := &during{Archive: memory.NewArchive()}
	guard, err := federation.NewGuard(func() (federation.GuardState, error) { return federation.GuardState{}, nil },
		func(federation.GuardState) error { return nil }, archive)
	if err != nil {
		t.Fatal(err)
	}
	r := memory.NewServer(1).Client(guard)
	rev, err := r.SwapControl(t.Context(), "v", 0, federationtest.Control("v", 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	archive.then = func() { _ = guard.Refuse("a test says so") }
	if _, err := r.SwapControl(t.Context(), "v", rev, federationtest.Control("v", 2, 1)); !errors.Is(err, federation.ErrUnknown) {
		t.Fatalf("error %v, want %v", err, federation.ErrUnknown)
	}
	archive.then = nil
	if c, _, err := r.GetControl(t.Context(), "v"); err != nil || c.Epoch != 2 {
		t.Errorf("the archive has %+v, %v: what was applied there is known", c, err)
	}
}
