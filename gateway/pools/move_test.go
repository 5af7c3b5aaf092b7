// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// onMain makes the volume on the main pool; it is to be on the other one from then on.
func (w *world) onMain(p *Pools) {
	w.t.Helper()
	w.wanted[volumeID] = "main"
	if _, err := p.Volume(volumeID); err != nil {
		w.t.Fatal(err)
	}
	w.wanted[volumeID] = "fast"
}

// TestMove: a volume is moved while it is written, with all that was there when it was closed.
func TestMove(t *testing.T) {
	w := newWorld(t)
	p := w.must("main", "fast")
	w.onMain(p)
	big := strings.Repeat("x", 3<<20)
	w.write(p, volumeID, "1.seg", big)
	w.write(p, volumeID, "2.seg", "a")
	w.write(p, volumeID, "gone.seg", big)
	w.write(p, volumeID, "meta/CURRENT", "1")
	w.write(p, volumeID, "meta/sub/000001.sst", big)
	want := w.read(p, volumeID)
	err := p.move(t.Context(), volumeID, p.All()[1], movers(func(f func() error) error {
		w.write(p, volumeID, "2.seg", "ab") // after the first pass
		w.write(p, volumeID, "meta/CURRENT", "2")
		w.write(p, volumeID, "3.seg", "new")
		w.remove("main/volumes/" + volumeID + "/gone.seg")
		p.Main().Room().Release(int64(len(big)))
		return f()
	}))
	if err != nil {
		t.Fatal(err)
	}
	w.tidy(p)
	want["2.seg"], want["meta/CURRENT"], want["3.seg"] = "ab", "2", "new"
	delete(want, "gone.seg")
	check := func() {
		t.Helper()
		if got := w.read(p, volumeID); p.Of(volumeID).Name != "fast" || !same(got, want) {
			t.Errorf("on %s are %v, want %v", p.Of(volumeID).Name, names(got), names(want))
		}
		if _, err := os.Stat(filepath.Join(w.at, "main/volumes", volumeID)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the former folder: %v", err)
		}
		w.used(p)
	}
	check()
	p = w.again(p, "main", "fast")
	check()
	w.wanted[volumeID] = "main"
	err = p.move(t.Context(), volumeID, p.Main(), movers(nil))
	if err != nil || p.Of(volumeID) != p.Main() || !same(w.read(p, volumeID), want) {
		t.Errorf("back again: %v, on %s", err, p.Of(volumeID).Name)
	}
	w.tidy(p)
	w.used(p)
}

func same(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

func names(m map[string]string) (out []string) {
	for k, v := range m {
		out = append(out, fmt.Sprintf("%s (%d)", k, len(v)))
	}
	slices.Sort(out)
	return out
}

// TestMoveCrashes: whenever the gateway is killed, the folder that counts has all that was written
// before, and the other one goes.
func TestMoveCrashes(t *testing.T) {
	w := newWorld(t)
	p := w.must("main", "fast")
	w.onMain(p)
	w.write(p, volumeID, "log", "0")
	w.write(p, volumeID, "meta/CURRENT", "0")
	w.write(p, volumeID, "1.seg", strings.Repeat("x", 2<<20))
	type state struct{ at, log string }
	var states []state
	log := "0"
	w.step = func() {
		at := filepath.Join(t.TempDir(), fmt.Sprint(len(states)))
		for _, pool := range []string{"main", "fast"} {
			if err := os.CopyFS(filepath.Join(at, pool), os.DirFS(filepath.Join(w.at, pool))); err != nil {
				t.Fatal(err)
			}
		}
		states = append(states, state{at, log})
	}
	said := func(text string) {
		w.step, text = nil, log+text
		w.write(p, volumeID, "log", text)
		w.write(p, volumeID, "meta/CURRENT", text)
		log = text
	}
	step := w.step
	err := p.move(t.Context(), volumeID, p.All()[1], movers(func(f func() error) error {
		step()
		said("1")
		w.step = step
		return f()
	}))
	if err != nil {
		t.Fatal(err)
	}
	said("2")
	step()
	w.step = step
	w.tidy(p)
	w.step = nil
	on := map[string]int{}
	for i, s := range states {
		x := &world{t: t, at: s.at, wanted: map[string]string{volumeID: "fast"}}
		q := x.must("main", "fast")
		got := x.read(q, volumeID)
		if why := q.Rewound(volumeID); got["log"] != s.log || got["meta/CURRENT"] != s.log || len(got["1.seg"]) != 2<<20 || why != nil {
			t.Errorf("after step %d of %d it is on %s with %v, log %q, want %q; it went back: %v", i, len(states), q.Of(volumeID).Name,
				names(got), got["log"], s.log, why)
		}
		x.tidy(q)
		on[q.Of(volumeID).Name]++
		there := 0
		for _, pool := range []string{"main", "fast"} {
			if _, err := os.Stat(filepath.Join(s.at, pool, "volumes", volumeID)); err == nil {
				there++
			}
		}
		if all, err := q.ListVolumes(); there != 1 || err != nil || !slices.Equal(all, []string{volumeID}) {
			t.Errorf("after step %d, %d pools have it; folders %v, %v", i, there, all, err)
		}
		x.used(q)
	}
	if on["main"] < 5 || on["fast"] < 5 {
		t.Errorf("after so many steps it is on: %v", on)
	}
}

// TestMoveFails: a move that fails leaves the volume where it is, and nothing on the other pool.
func TestMoveFails(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		prepare func(w *world, p *Pools)
		closed  func(w *world, p *Pools) error
		want    string
		on      string // where it is; "": main
	}{
		"no room":        {prepare: func(_ *world, p *Pools) { _ = p.All()[1].Room().Reserve(60 << 20) }, want: "full"},
		"does not close": {closed: func(*world, *Pools) error { return broken }, want: "broken"},
		"a file that is none": {prepare: func(w *world, _ *Pools) {
			if err := os.Symlink("/etc/passwd", filepath.Join(w.at, "main/volumes", volumeID, "link")); err != nil {
				w.t.Fatal(err)
			}
		}, want: "no file"},
		"notes before": {prepare: func(w *world, _ *Pools) { w.fail["sync "+notesFolder] = broken }, want: "note on pool main"},
		"notes after": {closed: func(w *world, _ *Pools) error { w.fail["sync "+notesFolder] = broken; return nil },
			want: "note on pool main"},
		"set aside meanwhile": {closed: func(_ *world, p *Pools) error {
			if err := p.RenameVolume(volumeID, SalvagePrefix+volumeID); !errors.Is(err, errMoves) {
				return fmt.Errorf("it was renamed during the move: %v", err)
			}
			return nil
		}, want: "context canceled"},
		"what is left stays": {closed: func(w *world, _ *Pools) error { w.fail["remove "+volumeID] = broken; return nil }, on: "fast"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.must("main", "fast")
			w.onMain(p)
			w.write(p, volumeID, "1.seg", strings.Repeat("x", 8<<20))
			w.write(p, volumeID, "meta/CURRENT", "1")
			if c.prepare != nil {
				c.prepare(w, p)
			}
			before := p.All()[1].Room().Status().Used
			err := p.move(t.Context(), volumeID, p.All()[1], movers(func(f func() error) error {
				if c.closed != nil {
					if err := c.closed(w, p); err != nil {
						return err
					}
				}
				return f()
			}))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("the move: %v, want %q", err, c.want)
			}
			if name == "notes after" { // nobody knows what is on the disk
				if d, err := p.Volume(volumeID); err == nil {
					t.Errorf("it is opened in %s", d.Path())
				}
			}
			clear(w.fail)
			on := map[string]string{"": "main"}[c.on] + c.on
			if got := p.Of(volumeID).Name; got != on {
				t.Errorf("it is on %s", got)
			}
			w.write(p, volumeID, "2.seg", "goes on")
			if err == nil {
				w.tidy(p)
				w.used(p)
				return
			}
			if used := p.All()[1].Room().Status().Used; name != "notes after" && name != "notes before" && used != before {
				t.Errorf("the other pool's room counts %d, before %d", used, before)
			}
			_ = os.Remove(filepath.Join(w.at, "main/volumes", volumeID, "link"))
			p = w.again(p, "main", "fast")
			if got := w.read(p, volumeID); p.Of(volumeID).Name != "main" || got["2.seg"] != "goes on" || p.Rewound(volumeID) != nil {
				t.Errorf("after a restart it is on %s with %v, %v", p.Of(volumeID).Name, names(got), p.Rewound(volumeID))
			}
			w.used(p)
			if err := p.move(t.Context(), volumeID, p.All()[1], movers(nil)); err != nil || w.read(p, volumeID)["2.seg"] != "goes on" {
				t.Errorf("the next move: %v", err)
			}
			w.tidy(p)
			w.used(p)
		})
	}
}

// TestMoveOfManyChanges: what is written again and again while it is copied is whole at the end.
func TestMoveOfManyChanges(t *testing.T) {
	w := newWorld(t)
	p := w.must("main", "fast")
	w.onMain(p)
	part := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
	path := func() string { return filepath.Join(w.at, "main/volumes", volumeID, "1.seg") }
	w.write(p, volumeID, "1.seg", strings.Repeat("-", 16<<20))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		f, err := os.OpenFile(path(), os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = f.Close() }()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			copy(part, fmt.Sprintf("%016d", i))
			if _, err := f.WriteAt(part, int64(i%256)*int64(len(part))); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	var want string
	err := p.move(t.Context(), volumeID, p.All()[1], movers(func(f func() error) error {
		close(stop)
		<-done
		want = w.read(p, volumeID)["1.seg"]
		return f()
	}))
	if got := w.read(p, volumeID)["1.seg"]; err != nil || p.Of(volumeID).Name != "fast" || got != want {
		t.Errorf("%v: on %s, %d bytes, the same: %t", err, p.Of(volumeID).Name, len(got), got == want)
	}
}

// TestMoveWithoutWhatDoesNotFit: what is only kept to be read stays behind if there is no room. It
// pushes nothing out there.
func TestMoveWithoutWhatDoesNotFit(t *testing.T) {
	w := newWorld(t)
	p := w.must("main", "fast")
	w.onMain(p)
	for i := range 6 {
		w.write(p, volumeID, fmt.Sprintf("%016x-main.cache", i+1), strings.Repeat("x", 5<<20))
	}
	w.write(p, volumeID, "1.seg", strings.Repeat("y", 20<<20))
	w.write(p, volumeID, "meta/CURRENT", "1")
	if err := p.All()[1].Room().Reserve(30 << 20); err != nil {
		t.Fatal(err)
	}
	if err := p.move(t.Context(), volumeID, p.All()[1], movers(nil)); err != nil {
		t.Fatal(err)
	}
	w.tidy(p)
	got := w.read(p, volumeID)
	reads := 0
	for name := range got {
		if isRead(name) {
			reads++
		}
	}
	if len(got["1.seg"]) != 20<<20 || got["meta/CURRENT"] != "1" || reads == 0 || reads == 6 {
		t.Errorf("there are %v", names(got))
	}
	if used := p.Main().Room().Status().Used; used > 64<<10 {
		t.Errorf("%d bytes are used of the former pool", used)
	}
	p.All()[1].Room().Release(30 << 20)
	w.used(p)
}

// TestMoveOntoAnother: what is there under the name of the volume, and was not seen before, is set
// aside, and nothing of it is in the volume.
func TestMoveOntoAnother(t *testing.T) {
	w := newWorld(t)
	w.hidden = map[string]string{"fast": volumeID}
	p := w.must("main", "fast")
	w.onMain(p)
	w.write(p, volumeID, "1.seg", "new")
	old := filepath.Join(w.at, "fast/volumes", volumeID)
	if err := errors.Join(os.MkdirAll(old, 0o700), os.WriteFile(filepath.Join(old, "2.seg"), []byte("old"), 0o600)); err != nil {
		t.Fatal(err)
	}
	w.hidden = nil
	if err := p.move(t.Context(), volumeID, p.All()[1], movers(nil)); err != nil {
		t.Fatal(err)
	}
	if got := w.read(p, volumeID); !same(got, map[string]string{"1.seg": "new"}) {
		t.Errorf("there are %v", names(got))
	}
	all, err := p.ListVolumes()
	if err != nil || len(all) != 2 || !strings.HasPrefix(all[1], SalvagePrefix+volumeID) || w.read(p, all[1])["2.seg"] != "old" {
		t.Errorf("folders %v, %v", all, err)
	}
}

// TestMoveThatHangs: a volume whose other pool does not answer is opened again where it was. What
// goes on when that pool answers counts no more.
func TestMoveThatHangs(t *testing.T) {
	w := newWorld(t)
	p := w.must("main", "fast")
	w.onMain(p)
	w.write(p, volumeID, "1.seg", "x")
	fired := make(chan time.Time)
	close(fired)
	m := movers(func(f func() error) error {
		release := p.hold(volumeID) // the last step waits, as for a disk
		defer release()
		return f()
	})
	m.After = func(d time.Duration) <-chan time.Time {
		if d != closedMost {
			t.Errorf("a wait of %v", d)
		}
		return fired
	}
	if err := p.move(t.Context(), volumeID, p.All()[1], m); !errors.Is(err, errSlow) {
		t.Errorf("the move: %v", err)
	}
	w.write(p, volumeID, "1.seg", "goes on")
	if got := w.read(p, volumeID)["1.seg"]; p.Of(volumeID) != p.Main() || got != "goes on" {
		t.Errorf("it is on %s, with %q", p.Of(volumeID).Name, got)
	}
	p.hold(volumeID)() // whoever waited is done after this, or finds the same
	p = w.again(p, "main", "fast")
	if got := w.read(p, volumeID)["1.seg"]; p.Of(volumeID) != p.Main() || got != "goes on" || p.Rewound(volumeID) != nil {
		t.Errorf("after a restart it is on %s, with %q, %v", p.Of(volumeID).Name, got, p.Rewound(volumeID))
	}
}

// TestRetry: a move that fails again and again is tried seldom.
func TestRetry(t *testing.T) {
	now, r, last := time.Unix(1000, 0), retry{}, time.Duration(0)
	for range 20 {
		r.failed(now)
		wait := r.at.Sub(now)
		if wait <= last && wait != retryMost {
			t.Fatalf("after %v it waits %v", last, wait)
		}
		now, last = now.Add(wait), wait
	}
	if last != retryMost {
		t.Errorf("at last it waits %v", last)
	}
}
