// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"
	"time"
)

// TestRegistryIsSilent: the registry is silent from its last answer on, and from the end of its
// watch on: what is known of others is as old as that, whoever else is answered.
func TestRegistryIsSilent(t *testing.T) {
	start := time.Unix(100, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	var a Answers
	a.Begin(start)
	a.Note(at(5)) // nothing is watched yet
	if got := a.Silent(at(10)); got != 10*time.Second {
		t.Errorf("before there is a watch: %v", got)
	}
	a.Watched(true)
	a.Note(at(10))
	if got := a.Silent(at(12)); got != 2*time.Second {
		t.Errorf("after an answer: %v", got)
	}
	a.Watched(false)
	a.Note(at(20))
	if got := a.Silent(at(30)); got != 20*time.Second {
		t.Errorf("after the watch ended: %v", got)
	}
}
