// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"fmt"
	"time"
)

// step advances time by a heartbeat and lets every site do its work.
func (w *world) step() {
	w.now.Add(int64(testBeat))
	for _, s := range w.sites {
		if s.node == nil || s.paused {
			continue
		}
		if ctl, rev, err := s.reg.GetControl(context.Background(), testVolume); err == nil && rev != s.seen {
			s.seen = rev
			s.node.ControlChanged(testVolume, &ctl, rev)
		}
		w.net.report(s)
		s.node.probe(s.node.cfg.Disks[0])
		s.node.tick()
	}
	w.settle()
}

// settle waits until the event loops and the network have nothing to do, or are blocked.
func (w *world) settle() {
	for quiet, n := 0, 0; quiet < 3 && n < 50; n++ {
		time.Sleep(100 * time.Microsecond)
		if w.idle() {
			quiet++
		} else {
			quiet = 0
		}
	}
}

func (w *world) idle() bool {
	for _, s := range w.sites {
		if s.node == nil || s.paused {
			continue
		}
		r := s.replica
		r.mu.Lock()
		busy := r.running || r.reading
		for _, x := range r.streams {
			busy = busy || x.running && !w.site(x.to).paused && !w.net.isHeld(s.name, x.to)
		}
		r.mu.Unlock()
		if busy {
			return false
		}
	}
	return w.net.idle()
}

// until steps until cond holds.
func (w *world) until(what string, cond func() bool) {
	w.Helper()
	for end := time.Now().Add(hangs); !cond(); w.step() {
		if time.Now().After(end) {
			w.Fatalf("%s: never\n%s", what, w.describe())
		}
	}
}

// pass steps for a time.
func (w *world) pass(d time.Duration) {
	for end := w.clock() + d; w.clock() < end; {
		w.step()
	}
}

func (w *world) describe() (out string) {
	for _, s := range w.sites {
		if s.node == nil || s.paused {
			out += fmt.Sprintf("%s: down or paused\n", s.name)
			continue
		}
		st := s.replica.Status()
		out += fmt.Sprintf("%s: %v epoch %d end %v durable %v commit %v joined %t log %v\n   %+v\n   %+v\n", s.name, st.Role,
			st.Epoch, st.End, st.Durable,
			st.Commit, st.Joined, s.log.End(), st.Control, st.Peers)
	}
	return out
}
