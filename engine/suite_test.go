// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"

	"github.com/weir-storage/weir/journal/journaltest"
)

// TestMemJournal: the journal of these tests keeps the contract that replicas keep.
func TestMemJournal(t *testing.T) {
	journaltest.Run(t, func(t *testing.T, m *journaltest.Machine) journaltest.Subject {
		j := newMemJournal()
		j.machine = m
		if err := m.Lead(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
		return journaltest.Subject{
			Journal: j,
			HoldCommits: func() func() {
				j.holdCommits()
				return j.release
			},
			Resign: func() { j.setHome(false) },
		}
	})
}
