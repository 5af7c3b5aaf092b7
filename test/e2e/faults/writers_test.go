// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-storage/weir/test/e2e/stage"
)

// writing are the sites that have writers.
var writing = []string{"b", "c"}

// writers are three programs on one machine: one appends lines, one makes files, one changes names.
type writers struct {
	site, dir string // dir is the machine's folder in the volume
	guest     *stage.Guest
	shared    string
	jobs      map[string]*stage.GuestJob
	lost      bool // its machine was killed
	bursts    int
}

// write boots a machine at a site and begins to write there.
func (r *run) write(site string) {
	r.T.Helper()
	r.machine++
	name := fmt.Sprintf("w%d", r.machine)
	m := r.Machine(site, name)
	w := &writers{site: site, dir: m.Dir + "/" + name, guest: m.Guest, shared: m.Shared(), jobs: map[string]*stage.GuestJob{}}
	m.Do("mkdir -p " + w.dir + "/files " + w.dir + "/names")
	for what, command := range map[string]string{
		"lines": fmt.Sprintf("PACE=20ms %s write %s/lines /x/lines /x/stop", r.Tool, w.dir),
		"files": fmt.Sprintf("PACE=500ms %s files %s/files /x/files /x/stop", r.Tool, w.dir),
		"names": fmt.Sprintf("PACE=100ms %s names %s/names /x/names /x/stop", r.Tool, w.dir),
	} {
		job, err := m.Start(r.Ctx, command)
		r.must(err)
		w.jobs[what] = job
	}
	r.writers[site] = w
	r.all = append(r.all, w)
}

// failed returns what a program said that ended; empty: all go on.
func (w *writers) failed() string {
	for what, j := range w.jobs {
		if res, ended := j.Ended(); ended {
			return fmt.Sprintf("%s: exit code %d: %s%s", what, res.Code, res.Stdout, res.Stderr)
		}
	}
	return ""
}

// finish ends the programs, which must not have failed.
func (w *writers) finish(r *run) {
	r.T.Helper()
	r.must(os.WriteFile(filepath.Join(w.shared, "stop"), nil, 0o644))
	for what, j := range w.jobs {
		res, err := j.Wait(r.Ctx)
		if err != nil || res.Code != 0 {
			r.T.Fatalf("%s at %s failed: %v, %d: %s%s", what, w.site, err, res.Code, res.Stdout, res.Stderr)
		}
		r.T.Logf("%s at %s: %s", what, w.site, strings.TrimSpace(res.Stdout))
	}
}

// verify checks at every site that all is there that any program noted, also those whose machines
// were lost.
func (r *run) verify() {
	r.T.Helper()
	for _, site := range r.Bed.Names() {
		m := r.Machine(site, "check-"+site)
		for _, w := range r.all {
			dir := m.Dir + "/" + filepath.Base(w.dir)
			for _, record := range []string{"lines", "files"} {
				text, err := os.ReadFile(filepath.Join(w.shared, record))
				r.must(err)
				r.must(os.WriteFile(filepath.Join(m.Shared(), record), text, 0o644))
			}
			said := m.Do(fmt.Sprintf("%s verify %s/lines /x/lines && %[1]s checkfiles %[2]s/files /x/files", r.Tool, dir))
			r.T.Logf("at %s, of %s: %s", site, filepath.Base(w.dir), strings.ReplaceAll(said, "\n", "; "))
		}
	}
}

// stall is a write that took its time.
type stall struct {
	end  time.Time
	took time.Duration
}

// stalls returns the writes that programs noted: number, time in nanoseconds, microseconds.
func (w *writers) stalls(r *run) (out []stall) {
	r.T.Helper()
	for _, record := range []string{"lines", "files"} {
		f, err := os.Open(filepath.Join(w.shared, record))
		r.must(err)
		for s := bufio.NewScanner(f); s.Scan(); {
			fields := strings.Fields(s.Text())
			if len(fields) != 3 {
				continue // a power cut tore it
			}
			at, err1 := strconv.ParseInt(fields[1], 10, 64)
			took, err2 := strconv.ParseInt(fields[2], 10, 64)
			if err1 == nil && err2 == nil {
				out = append(out, stall{time.Unix(0, at), time.Duration(took) * time.Microsecond})
			}
		}
		r.must(f.Close())
	}
	return out
}

// figures logs for each kind how often it was, and the longest stall of a writer that it caused.
func (r *run) figures() {
	r.T.Helper()
	var all []stall
	for _, w := range r.all {
		all = append(all, w.stalls(r)...)
	}
	slices.SortFunc(all, func(a, b stall) int { return a.end.Compare(b.end) })
	for _, k := range kinds {
		n, longest, whole := 0, time.Duration(0), time.Duration(0)
		for _, h := range r.done {
			if h.kind != k.name {
				continue
			}
			n++
			whole = max(whole, h.end.Sub(h.begin))
			i, _ := slices.BinarySearchFunc(all, h.begin, func(s stall, at time.Time) int { return s.end.Compare(at) })
			for ; i < len(all) && all[i].end.Add(-all[i].took).Before(h.end); i++ {
				longest = max(longest, all[i].took)
			}
		}
		r.T.Logf("%-15s %3d times; longest stall of a writer %6.2f s; whole again after at most %5.1f s", k.name, n, longest.Seconds(),
			whole.Seconds())
	}
}
