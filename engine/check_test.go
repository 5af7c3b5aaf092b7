// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weir-storage/weir/engine/fsck"
	"github.com/weir-storage/weir/engine/log"
)

// health checks the applied metadata of an engine, whose blocks are in l. l may be nil.
func health(e *Engine, l *log.Log) error {
	cfg := fsck.Config{Entries: 5}
	if l != nil {
		lengths := map[uint64]uint64{}
		for _, s := range l.Segments() {
			lengths[s.Seq] = s.Len
		}
		end := l.End()
		lengths[end.Seq] = max(lengths[end.Seq], end.Off)
		cfg.Segments = func(seq uint64) (uint64, bool) {
			n, ok := lengths[seq]
			return n, ok
		}
	}
	report, err := e.Check(context.Background(), cfg)
	if err != nil {
		return err
	}
	if !report.Complete {
		err = errors.New("the check is not complete")
	}
	for _, f := range report.Findings {
		err = errors.Join(err, fmt.Errorf("the check finds %+v", f))
	}
	return err
}

// wantHealthy checks the metadata of an engine, to the last record.
func wantHealthy(t testing.TB, e *Engine) {
	t.Helper()
	if err := e.WaitApplied(context.Background(), e.lastEnd()); err != nil {
		t.Fatal(err)
	}
	if err := health(e, nil); err != nil {
		t.Error(err)
	}
}
