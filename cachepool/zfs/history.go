// SPDX-License-Identifier: Apache-2.0

package zfs

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// rewinds is what the history of a ZFS pool tells of datasets that went back to what they had
// before, and so may have lost what was made durable there (protocol-3). Datasets are named without
// their pool.
type rewinds struct {
	made     map[string]int    // the line that made a dataset
	went     map[string]rewind // the last line that took a dataset back
	received map[string]rewind // the last line that received a stream, into a dataset or below it
	// notes: the pool notes itself into which datasets it received what, so received is not needed.
	notes bool
	// all: the pool was imported or cleared without its last transactions, or imported without its
	// log devices.
	all rewind
}

// rewind is a line of the history.
type rewind struct {
	n    int // lines count from 1
	line string
}

// last returns the last line that tells that a dataset went back since it was made; "": none does.
func (r rewinds) last(dataset string) string {
	dataset = inPool(dataset)
	last := rewind{n: r.made[dataset]}
	later := func(other rewind) {
		if other.n > last.n {
			last = other
		}
	}
	later(r.all)
	later(r.went[dataset])
	for above := dataset; !r.notes; {
		later(r.received[above])
		slash := strings.LastIndexByte(above, '/')
		if above == "" {
			break
		}
		above = above[:max(slash, 0)]
	}
	return last.line
}

// stamp names the last line that tells that a dataset went back.
func (r rewinds) stamp(dataset string) string {
	return stampOf(r.last(dataset))
}

// stampOf names a line of a history.
func stampOf(line string) string {
	if line == "" {
		return never
	}
	when, _, _ := strings.Cut(line, " ")
	return fmt.Sprintf("%s/%x", when, sha256.Sum256([]byte(line)))[:len(when)+1+16]
}

// inPool returns a dataset's name without its pool, and without a snapshot.
func inPool(name string) string {
	_, name, _ = strings.Cut(name, "/")
	name, _, _ = strings.Cut(name, "@")
	return name
}

// historyTime bounds the reading of a pool's history, which may be long.
const historyTime = 10 * time.Minute

// history reads the history of a dataset's pool.
func (t Tools) history(ctx context.Context, dataset string) (rewinds, error) {
	pool, _, _ := strings.Cut(dataset, "/")
	text, err := t.runFor(ctx, historyTime, "zpool", []string{"history", "-i", pool})
	if err != nil {
		return rewinds{}, err
	}
	return parseHistory(text), nil
}

// parseHistory reads what `zpool history -i` prints: what people typed, and what the pool noted
// itself.
func parseHistory(text string) rewinds {
	r := rewinds{made: map[string]int{}, went: map[string]rewind{}, received: map[string]rewind{}}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if words := strings.Fields(line); len(words) > 3 {
			r.note(rewind{n, line}, words[1:])
		}
	}
	return r
}

// note notes a line, of which words are what follows the time.
func (r *rewinds) note(here rewind, words []string) {
	what := words[0] + " " + words[1]
	if strings.HasPrefix(words[0], "[txg:") { // OpenZFS notes it so, whoever asked for it
		what = "noted " + words[1] + " " + words[2]
		r.notes = true
	}
	switch what {
	case "noted clone swap":
		if len(words) < 4 {
			return
		}
		for _, temporary := range []string{"/%rollback", "/%recv"} {
			if dataset, ok := strings.CutSuffix(words[3], temporary); ok {
				r.went[inPool(dataset)] = here
			}
		}
	case "noted checkpoint rewind":
		r.all = here
	case "zfs rollback":
		if _, names := options(words[2:], ""); len(names) > 0 {
			r.went[inPool(names[0])] = here
		}
	case "zfs receive", "zfs recv":
		if set, names := options(words[2:], "ox"); len(names) > 0 && !strings.Contains(set, "A") {
			r.received[inPool(names[0])] = here
		}
	case "zfs create", "zfs clone":
		if _, names := options(words[2:], "oVb"); len(names) > 0 {
			made := inPool(names[len(names)-1])
			r.made[made] = here.n // what was there before had only the same name
		}
	case "zfs destroy":
		if _, names := options(words[2:], ""); len(names) > 0 && !strings.Contains(names[0], "@") {
			r.destroy(inPool(names[0]))
		}
	case "zfs rename":
		if _, names := options(words[2:], ""); len(names) == 2 && !strings.Contains(names[0], "@") {
			r.rename(inPool(names[0]), inPool(names[1]))
		}
	case "zpool import", "zpool clear":
		set, _ := options(words[2:], "odcRT")
		back := slices.Contains(words, "--rewind-to-checkpoint") || strings.ContainsAny(set, "FXTm")
		if back && !strings.Contains(set, "n") {
			r.all = here
		}
	}
}

// destroy forgets a dataset and those below it.
func (r *rewinds) destroy(name string) {
	forget(r.made, name)
	forget(r.went, name)
	forget(r.received, name)
}

func forget[V any](of map[string]V, name string) {
	maps.DeleteFunc(of, func(other string, _ V) bool { return other == name || strings.HasPrefix(other, name+"/") })
}

// rename gives a dataset and those below it other names.
func (r *rewinds) rename(from, to string) {
	r.destroy(to) // what had the name before is gone
	move(r.made, from, to)
	move(r.went, from, to)
	move(r.received, from, to)
}

func move[V any](of map[string]V, from, to string) {
	moved := map[string]V{}
	for name, v := range of {
		if rest, ok := strings.CutPrefix(name+"/", from+"/"); ok {
			moved[strings.TrimSuffix(to+"/"+rest, "/")] = v
			delete(of, name)
		}
	}
	for name, v := range moved {
		of[name] = v
	}
}

// options splits what was typed after a command into the letters of its options and the rest. Those
// of with have a value.
func options(words []string, with string) (letters string, rest []string) {
	for i := 0; i < len(words); i++ {
		word := words[i]
		if !strings.HasPrefix(word, "-") || strings.HasPrefix(word, "--") || word == "-" {
			if !strings.HasPrefix(word, "--") {
				rest = append(rest, word)
			}
			continue
		}
		for j := 1; j < len(word); j++ {
			letters += word[j : j+1]
			if strings.IndexByte(with, word[j]) >= 0 {
				if j == len(word)-1 {
					i++ // its value is the next word
				}
				break
			}
		}
	}
	return letters, rest
}
