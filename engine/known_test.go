// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// TestUnstableWaitsForReaders: what is acknowledged or shown before its commit waits for those who
// read under leases elsewhere (protocol-26); what is committed waited for them before.
func TestUnstableWaitsForReaders(t *testing.T) {
	h := newHost(t, nil)
	f, other := newFile(t, h, volume.Root, "f"), newFile(t, h, volume.Root, "other")
	know := make(chan struct{})
	asked := make(chan segment.Position, 8)
	h.journal.mu.Lock()
	h.journal.known = func(ctx context.Context, pos segment.Position) error {
		asked <- pos
		select {
		case <-know:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	h.journal.mu.Unlock()
	if _, err := h.Write(t.Context(), asRoot, f, 0, []byte("stable"), true); err != nil {
		t.Fatal(err)
	}
	h.journal.holdCommits()
	done := make(chan error, 2)
	go func() {
		_, err := h.Write(t.Context(), asRoot, f, 0, []byte("unstable"), false)
		done <- err
	}()
	wait := func(what string) (pos segment.Position) {
		t.Helper()
		select {
		case pos = <-asked:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s does not wait", what)
		}
		return pos
	}
	end := wait("an unstable write")
	p := make([]byte, 20)
	go func() {
		_, _, err := h.Read(t.Context(), asRoot, f, 0, p)
		done <- err
	}()
	if pos := wait("a read of it"); pos != end {
		t.Errorf("a read of what ends at %v waits for %v", end, pos)
	}
	if _, _, err := h.Read(t.Context(), asRoot, other, 0, p[10:]); err != nil { // hangs if it waits
		t.Error(err)
	}
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	close(know)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if string(p[:8]) != "unstable" {
		t.Errorf("%q", p)
	}
	h.journal.release()
}
