// SPDX-License-Identifier: Apache-2.0

package gatewaycmd

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLongestPromise: a promise that was given outlives the configuration under which it was given.
func TestLongestPromise(t *testing.T) {
	f := promiseFile(filepath.Join(t.TempDir(), promiseName))
	log := slog.New(slog.DiscardHandler)
	waits := func(ok bool) (*time.Duration, func(context.Context, time.Duration) bool) {
		waited := new(time.Duration)
		return waited, func(_ context.Context, d time.Duration) bool { *waited = d; return ok }
	}
	begin := func(now, want time.Duration) {
		t.Helper()
		if former, err := f.begin(now); err != nil || former != want {
			t.Fatalf("begin with %v: %v, %v, want %v", now, former, err, want)
		}
	}
	begin(30*time.Second, 0)
	begin(3*time.Second, 30*time.Second)
	waited, pause := waits(false) // the process ends before the longer promise is over
	if f.settle(t.Context(), 30*time.Second, 3*time.Second, pause, log); *waited != 30*time.Second {
		t.Errorf("it waited for %v", *waited)
	}
	begin(3*time.Second, 30*time.Second)
	_, pause = waits(true)
	f.settle(t.Context(), 30*time.Second, 3*time.Second, pause, log)
	begin(3*time.Second, 3*time.Second)
	begin(60*time.Second, 3*time.Second) // raised: the longer one counts from now on
	begin(3*time.Second, 60*time.Second)
	if err := os.WriteFile(string(f), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.begin(time.Second); err == nil || !strings.Contains(err.Error(), "then remove it") {
		t.Errorf("a file that cannot be read: %v", err)
	}
}
