// SPDX-License-Identifier: Apache-2.0

package fsckcmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/gateway/checking"
)

// write prints the results for people.
func write(sh *cli.Shell, name string, all []Result) error {
	for i := range all {
		r := &all[i]
		at := r.Place
		if r.Gateway != "" {
			at = cli.With(r.Gateway, r.Site)
		}
		if r.Report != nil {
			for j := range r.Report.Damage {
				if err := sh.Say("%s", line(&r.Report.Damage[j])); err != nil {
					return err
				}
			}
			if r.Report.More > 0 {
				if err := sh.Say("and %d more\n", r.Report.More); err != nil {
					return err
				}
			}
			if err := sh.Say("volume %s at %s: %s\n", name, at, summary(r.Report)); err != nil {
				return err
			}
		}
		if r.Problem != "" {
			sh.Tell("%s: %s\n", at, r.Problem)
		}
	}
	return nil
}

// line says what is wrong, and what is to be done.
func line(d *checking.Damage) string {
	what := d.Path
	switch {
	case what != "":
	case d.Inode != 0:
		what = fmt.Sprintf("inode %d", d.Inode)
	case d.Segment != 0:
		what = fmt.Sprintf("segment %d", d.Segment)
	default:
		what = "the volume"
	}
	if d.To > 0 {
		what += fmt.Sprintf(" [%d, %d)", d.From, d.To)
	}
	state := "not repaired"
	if d.Repaired {
		state = "repaired"
	}
	out := fmt.Sprintf("%s: %s, %s, %s: %s\n", what, d.Where, d.Kind, state, d.Detail)
	if d.Advice != "" {
		out += "    " + d.Advice + "\n"
	}
	return out
}

// summary says in one line what was looked at, and what came of it.
func summary(r *checking.Report) string {
	var parts []string
	part := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	part("%d segments", r.Segments)
	if r.Data {
		part("%s read", cli.Bytes(int64(r.Bytes)))
	} else {
		part("data not read")
	}
	if m := r.Metadata; m != nil {
		part("%d inodes, %d names, %d extents, %d snapshots", m.Inodes, m.Names, m.Extents, m.Snapshots)
	} else {
		part("no metadata checked")
	}
	if r.Lacking > 0 {
		part("%d segments are not here", r.Lacking)
	}
	if r.Unopened > 0 {
		part("%d segments hashed only, since their key is not known here", r.Unopened)
	}
	out := strings.Join(parts, ", ") + ": "
	fixed, left := r.Repaired(), r.Left()
	switch {
	case fixed+left == 0 && r.Complete:
		return out + "clean"
	case fixed+left == 0:
		return out + "not complete"
	}
	out += fmt.Sprintf("%d errors repaired, %d left", fixed, left)
	if n := r.Lost(); n > 0 {
		out += fmt.Sprintf("; no copy in reach has %s of files", cli.Bytes(int64(n)))
	}
	return out
}

// progress shows how far a check is, on one line of a terminal, or now and then.
type progress struct {
	sh          *cli.Shell
	live, shown bool
	at, step    string
	began, last time.Time // of the step, and of the last line
}

func newProgress(sh *cli.Shell, at string) *progress {
	return &progress{sh: sh, live: cli.Terminal(sh.Err), at: at, last: sh.Now()}
}

// begin says which copy comes next.
func (p *progress) begin(at string) { p.at, p.step = at, "" }

// sayEvery is how often a line is written where there is no terminal.
const sayEvery = 5 * time.Second

func (p *progress) tell(is checking.Progress) {
	now := p.sh.Now()
	if is.Step != p.step {
		p.step, p.began = is.Step, now
	}
	if every := sayEvery; !p.live && now.Sub(p.last) < every {
		return
	}
	p.last = now
	text := p.at + ": " + bar(is, now.Sub(p.began))
	if p.live {
		p.sh.Tell("\r\x1b[K%s", text)
		p.shown = true
		return
	}
	p.sh.Tell("%s\n", text)
}

// end leaves the line of a terminal.
func (p *progress) end() {
	if p.shown {
		p.sh.Tell("\r\x1b[K")
		p.shown = false
	}
}

// width is that of a whole bar.
const width = 30

// bar draws how far a step is that took some time.
func bar(is checking.Progress, took time.Duration) string {
	amount := func(n uint64) string {
		if is.Bytes {
			return cli.Bytes(int64(n))
		}
		return fmt.Sprint(n)
	}
	if is.Total == 0 {
		if is.Done == 0 {
			return is.Step
		}
		return is.Step + ": " + amount(is.Done)
	}
	done := min(is.Done, is.Total)
	full := int(done * width / is.Total)
	out := fmt.Sprintf("%s [%s%s] %d %%, %s of %s", is.Step, strings.Repeat("#", full), strings.Repeat(".", width-full),
		done*100/is.Total, amount(done), amount(is.Total))
	if s := took.Seconds(); s >= 1 && done > 0 && done < is.Total {
		out += ", " + cli.Span(s*float64(is.Total-done)/float64(done)) + " left"
	}
	return out
}
