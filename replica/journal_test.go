// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/journal/journaltest"
)

// TestJournal runs the contract's suite on the home of a volume that two of two sites acknowledge.
func TestJournal(t *testing.T) {
	journaltest.Run(t, func(t *testing.T, m *journaltest.Machine) journaltest.Subject {
		w := newWorld(t, "ab", 2)
		a := w.site("a")
		a.other = m
		w.up("a", "b")
		w.leads("a", 0)
		w.members("a", "a", "b")
		clock := &walker{w: w}
		clock.walk()
		t.Cleanup(clock.rest)
		return journaltest.Subject{
			Journal: a.replica,
			HoldCommits: func() func() {
				clock.rest() // or b is taken to be gone
				w.net.hold("a", "b", "frames", true)
				return func() {
					w.net.hold("a", "b", "frames", false)
					clock.walk()
				}
			},
			Resign: func() {
				clock.rest()
				w.net.cut("a", "b")
				w.net.cut("b", "a")
				w.net.hold("a", "b", "frames", false)
				a.reg.SetDown(true) // or a goes on without b
				w.leads("b", 1)
				a.reg.SetDown(false)
				w.until("a hears that b is home", func() bool {
					a.replica.mu.Lock()
					defer a.replica.mu.Unlock()
					return !a.replica.accepts
				})
			},
		}
	})
}

// walker advances a world's time while a suite, which does not know of it, waits.
type walker struct {
	w    *world
	mu   sync.Mutex
	stop chan struct{}
	done sync.WaitGroup
}

// walk begins to advance time. It does nothing if time advances already.
func (k *walker) walk() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stop != nil {
		return
	}
	stop := make(chan struct{})
	k.stop = stop
	k.done.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond): // lets other goroutines run
				k.w.step()
			}
		}
	})
}

// rest ends walk, and returns when time stands still.
func (k *walker) rest() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stop != nil {
		close(k.stop)
		k.stop = nil
	}
	k.done.Wait()
}
