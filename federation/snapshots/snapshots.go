// SPDX-License-Identifier: Apache-2.0

// Package snapshots says which snapshots a volume is to have, as its owner writes it, and which it
// has, as its home reports it. The home takes and drops them (package gateway/snapshots).
//
// # Rules
//
//   - snapshots-1: A snapshot is dropped because a Wish says so, or by the schedule that made it.
//     It is never dropped because something is missing: a registry that was restored from a backup
//     lacks wishes.
//   - snapshots-2: A wish for a snapshot ends only when its owner takes it out of the record. One
//     that says drop is taken out when the home has reported StateDropped for it: from then on no
//     attempt of before can take the snapshot again.
//   - snapshots-3: The name of a scheduled snapshot says its period, so that another home does not
//     take a second one. Nobody else can give such a name.
//   - snapshots-4: A volume is rolled back once for each Rollback.ID, whoever is home then, and
//     also if an old record asks again: the log has the ID (protocol-22). A rollback that has not
//     begun at Rollback.Until never begins.
//   - snapshots-5: The name of a snapshot that is taken while changes are held has the UID of its
//     wish. So one that is there was taken for that wish, and in no other way (protocol-29).
package snapshots

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation/quantity"
)

// Policy says which snapshots a volume gets by itself, and how they are seen. The zero value takes
// none.
type Policy struct {
	// Schedule has what is taken regularly. Each Every is there once at most.
	Schedule []Schedule `json:"schedule,omitempty"`
	// Window is for how long the volume can be looked at as of any second; 0: not at all.
	Window quantity.Duration `json:"window,omitempty"`
	// Directory says how clients see snapshots; "" is DirectoryHidden.
	Directory Directory `json:"directory,omitempty"`
}

// Trash says what becomes of removed files. The zero value keeps none.
type Trash struct {
	// Keep is for how long they can be restored; 0: not at all.
	Keep quantity.Duration `json:"keep,omitempty"`
}

// MaxTrash bounds Trash.Keep.
const MaxTrash = quantity.Duration(366 * 24 * time.Hour)

// Problems returns what is wrong with t: field, value and what to do.
func (t Trash) Problems() (out [][3]string) {
	if k := t.Keep; k < 0 || k > MaxTrash || time.Duration(k)%time.Second != 0 {
		out = append(out, [3]string{"keep", fmt.Sprint(k), fmt.Sprintf("not whole seconds from 0 to %v: write a time span such as 168h, "+
			"or leave it out for none", MaxTrash)})
	}
	return out
}

// Schedule takes a snapshot in each period, and keeps the newest ones.
type Schedule struct {
	Every Every `json:"every"`
	Keep  int   `json:"keep"`
}

// Directory says how clients see snapshots.
type Directory string

// The values of Directory.
const (
	// Each directory has a directory .snapshots, which listings do not show.
	DirectoryHidden Directory = "Hidden"
	// There is none.
	DirectoryNone Directory = "None"
)

// Wish is a snapshot that somebody asked for.
type Wish struct {
	// Name is the snapshot's in the volume (CheckName).
	Name string `json:"name"`
	// UID says who asked: the UID of an object of Kubernetes, or a number that a command drew. Who
	// asks again for the name with another one is somebody else. Who wants a snapshot dropped for
	// which nobody asked draws a number too.
	UID string `json:"uid"`
	// Drop: it is not wanted any more.
	Drop bool `json:"drop,omitempty"`
	// Hold: the home first holds changes of the volume, and reports StateHeld with a token. It
	// takes the snapshot when Take has that token. Name ends in "-" and UID. For records that all
	// gateways of the federation can read (HoldLevel).
	Hold bool `json:"hold,omitempty"`
	// Take is a token that the home has reported. Who asks writes it once, when the homes of all
	// volumes of a group have reported theirs (protocol-29).
	Take string `json:"take,omitempty"`
}

// HoldLevel is the format level of the gateways that know Wish.Hold.
const HoldLevel = 11

// HoldTime is how long a home holds changes at most, by its own monotonic clock.
const HoldTime = 8 * time.Second

// HeldName is the name of a snapshot that is taken while changes are held.
func HeldName(name, uid string) string { return name + "-" + uid }

// Rollback asks that a volume is made what it was in a snapshot.
type Rollback struct {
	// ID is a UUID that whoever asks draws for this rollback alone.
	ID string `json:"id"`
	// To is the name of a snapshot, or a time after "@".
	To string `json:"to"`
	// Until is when it is too late to begin, by the home's clock: nobody wants it a day later.
	Until time.Time `json:"until"`
}

// Before is the name of the snapshot that the rollback takes first, of what was there.
func (r Rollback) Before() string { return beforeRollback + r.ID }

const beforeRollback = "before-rollback-"

// Rolled is what became of a Rollback.
type Rolled struct {
	ID    string `json:"id"`
	State State  `json:"state"` // Done, Pending or Refused
	// Message says why it waits, or why it is refused.
	Message string `json:"message,omitempty"`
}

// Report is what a home reports of a volume's snapshots.
type Report struct {
	// All has the snapshots with names, oldest first, and then what became of other wishes.
	All []Snapshot `json:"all,omitempty"`
	// More is how many of the oldest are left out of All: those beyond MaxReported.
	More int `json:"more,omitempty"`
	// Problem says why the schedule is behind; empty: it is not.
	Problem string `json:"problem,omitempty"`
	// Rolled is about the rollback that the record asks for; nil: it asks for none.
	Rolled *Rolled `json:"rolled,omitempty"`
	// Filled is about the Source that the record has; nil: it has none, or nothing is known yet.
	Filled *Filled `json:"filled,omitempty"`
}

// Snapshot is a snapshot, or what became of a wish.
type Snapshot struct {
	Name string `json:"name"`
	// UID is that of the wish that this is about; empty: nobody asked.
	UID   string `json:"uid,omitempty"`
	State State  `json:"state"`
	// Time is that of the home's clock when it was taken. Bytes and Inodes are what the volume
	// used.
	Time   time.Time `json:"time,omitzero"`
	Bytes  uint64    `json:"bytes,omitempty"`
	Inodes uint64    `json:"inodes,omitempty"`
	// Snap is the snapshot's number in handles; 0: an earlier release reports it.
	Snap uint32 `json:"snap,omitempty"`
	// Token is of StateHeld: what Wish.Take has to be.
	Token string `json:"token,omitempty"`
	// Message says why a wish waits.
	Message string `json:"message,omitempty"`
}

// State is what became of a wish.
type State string

// States.
const (
	StateTaken   State = "Taken"
	StatePending State = "Pending" // it is neither taken nor dropped yet
	StateDropped State = "Dropped" // it is not there, and no earlier attempt will take it
	StateHeld    State = "Held"    // changes are held until it is taken, or for HoldTime
	StateMissed  State = "Missed"  // changes are not held any more: it is not there, and will not be taken
	StateDone    State = "Done"    // the volume was rolled back
	StateRefused State = "Refused" // it will not be rolled back for this
)

// Count is how many snapshots with names there are.
func (r *Report) Count() int {
	n := r.More
	for _, s := range r.All {
		if s.there() {
			n++
		}
	}
	return n
}

// Failing says what could not be taken or dropped, and why; empty: nothing.
func (r *Report) Failing() string {
	for _, s := range r.All {
		if s.Message != "" {
			return s.Name + ": " + s.Message
		}
	}
	return r.Problem
}

// there reports whether the snapshot exists: one that is to be dropped is there until it is.
func (s Snapshot) there() bool { return !s.Time.IsZero() }

// Of returns what is reported of a name; false: nothing.
func (r *Report) Of(name string) (Snapshot, bool) {
	if r != nil {
		for _, s := range r.All {
			if s.Name == name {
				return s, true
			}
		}
	}
	return Snapshot{}, false
}

// Dropped reports whether the home says that a wish to drop is done.
func (r *Report) Dropped(w Wish) bool {
	s, ok := r.Of(w.Name)
	return ok && w.Drop && s.State == StateDropped && s.UID == w.UID
}

// Settled reports whether the home says that a rollback is done or refused.
func (r *Report) Settled(x Rollback) bool {
	return r != nil && r.Rolled != nil && r.Rolled.ID == x.ID && r.Rolled.State != StatePending
}

// Bounds of what a record has. They keep it and its reports below a tenth of what etcd takes.
const (
	MaxWishes   = 128
	MaxKept     = 128 // of all schedules
	MaxReported = 320
	// MaxWindow bounds Policy.Window: there may be a snapshot for each second of it.
	MaxWindow = quantity.Duration(24 * time.Hour)
	// MaxName is the most bytes of a snapshot's name.
	MaxName = 128
)

// MaxRollbackWait is how long a rollback may wait for a home that begins it.
const MaxRollbackWait = time.Hour

var idForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Wrong returns what is wrong with a rollback; empty: nothing. A record that asks for none has nil.
func (r *Rollback) Wrong() string {
	if r == nil {
		return ""
	}
	problem := checkAny(strings.TrimPrefix(r.To, "@"))
	switch {
	case !idForm.MatchString(r.ID):
		return fmt.Sprintf("rollback: id %q is no UUID: draw one for each rollback", r.ID)
	case problem != "":
		return fmt.Sprintf("rollback: to %q: %s: name a snapshot, or a time after @", r.To, problem)
	case r.Until.IsZero():
		return "rollback: until is missing: say when it is too late to begin"
	}
	return ""
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// CheckName returns what is wrong with the name of a snapshot that somebody asks for; empty:
// nothing.
func CheckName(name string) string {
	switch {
	case name == "":
		return "missing: give the snapshot a name"
	case len(name) > MaxName:
		return fmt.Sprintf("longer than %d bytes: give a shorter name", MaxName)
	case !nameForm.MatchString(name):
		return "not a snapshot's name: use letters, digits, '.', '_' and '-', with a letter or digit first"
	case strings.HasPrefix(name, beforeRollback):
		return "names like this are those of what rollbacks leave: put a word before it"
	case reserved.MatchString(name):
		return "names like this are those of scheduled snapshots: put a word before it"
	}
	return ""
}

// checkAny returns what is wrong with the name of a snapshot that there may be.
func checkAny(name string) string {
	if name == "" || len(name) > 255 || strings.ContainsAny(name, "/\x00") || strings.HasPrefix(name, "@") {
		return "not the name of any snapshot"
	}
	return ""
}

// Problems returns what is wrong with a policy: field, value and what to do.
func (p Policy) Problems() (out [][3]string) {
	add := func(field string, value any, problem string, a ...any) {
		out = append(out, [3]string{field, fmt.Sprint(value), fmt.Sprintf(problem, a...)})
	}
	kept, there := 0, map[Every]bool{}
	for i, s := range p.Schedule {
		at := fmt.Sprintf("schedule[%d].", i)
		switch {
		case s.Every.prefix() == "":
			add(at+"every", s.Every, "not one of QuarterHourly, Hourly, Daily, Weekly, Monthly")
		case there[s.Every]:
			add(at+"every", s.Every, "there twice: write each once")
		}
		there[s.Every] = true
		if s.Keep < 1 {
			add(at+"keep", s.Keep, "less than 1: write how many are kept, or leave the entry out for none")
		}
		kept += max(s.Keep, 0)
	}
	if kept > MaxKept {
		add("schedule", kept, "more than %d snapshots in all: keep fewer", MaxKept)
	}
	if w := p.Window; w < 0 || w > MaxWindow || time.Duration(w)%time.Second != 0 {
		add("window", w, "not whole seconds from 0 to %v: write a time span such as 1h, or leave it out for none", MaxWindow)
	}
	if d := p.Directory; d != "" && d != DirectoryHidden && d != DirectoryNone {
		add("directory", d, "not one of Hidden, None")
	}
	return out
}

// Wrong returns what is wrong with the wishes of a record; empty: nothing.
func Wrong(all []Wish) string {
	if len(all) > MaxWishes {
		return fmt.Sprintf("snapshots: %d are asked for, and at most %d can be: drop some", len(all), MaxWishes)
	}
	there := map[string]bool{}
	for _, w := range all {
		problem := CheckName(w.Name)
		if w.Drop { // whoever gave it
			problem = checkAny(w.Name)
		}
		switch {
		case problem != "":
			return fmt.Sprintf("snapshots: %q: %s", w.Name, problem)
		case there[w.Name]:
			return fmt.Sprintf("snapshots: %s is there twice: name each once", w.Name)
		case w.UID == "" || len(w.UID) > MaxName:
			return fmt.Sprintf("snapshots: %s: uid is %q: say who asked, in at most %d bytes", w.Name, w.UID, MaxName)
		case w.Hold && !strings.HasSuffix(w.Name, HeldName("", w.UID)):
			return fmt.Sprintf("snapshots: %s: it is taken while changes are held, and its name does not end in its uid %s", w.Name, w.UID)
		case len(w.Take) > MaxName || w.Take != "" && !w.Hold:
			return fmt.Sprintf("snapshots: %s: take is %q: write the token that the home reports for a wish with hold", w.Name, w.Take)
		}
		there[w.Name] = true
	}
	return ""
}

// Find returns the wish of a name; false: there is none.
func Find(all []Wish, name string) (Wish, bool) {
	for _, w := range all {
		if w.Name == name {
			return w, true
		}
	}
	return Wish{}, false
}

// Put returns all with w in place of the wish of its name, without those that the home has dropped.
// All is not modified.
func Put(all []Wish, w Wish, seen *Report) []Wish {
	return append(Without(all, w.Name, seen), w)
}

// Without returns all without the wish of a name, and without those that the home has dropped. All
// is not modified.
func Without(all []Wish, name string, seen *Report) (out []Wish) {
	for _, old := range all {
		if old.Name != name && !seen.Dropped(old) {
			out = append(out, old)
		}
	}
	return out
}
