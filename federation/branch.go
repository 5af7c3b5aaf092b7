// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// keptTrail is how many ancestors a control record names at most.
const keptTrail = 256

// Ancestor names a record that a control record came from.
type Ancestor struct {
	Change uint64
	Digest string // of what that record said, and of its own newest ancestor
}

// MarshalText makes an ancestor short in the registry: "CHANGE-DIGEST".
func (a Ancestor) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d-%s", a.Change, a.Digest), nil
}

// UnmarshalText is the inverse of MarshalText.
func (a *Ancestor) UnmarshalText(text []byte) (err error) {
	change, digest, ok := strings.Cut(string(text), "-")
	if a.Change, err = strconv.ParseUint(change, 10, 64); err != nil || !ok {
		return fmt.Errorf("ancestor %q: want CHANGE-DIGEST", text)
	}
	a.Digest = digest
	return nil
}

// ancestor returns what descendants of c name it by.
func (c Control) ancestor() Ancestor {
	var newest Ancestor
	if n := len(c.Trail); n > 0 {
		newest = c.Trail[n-1]
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d %q %q %v %v", c.Volume, c.Epoch, c.Change, c.Home, c.Members, c.History, newest))
	return Ancestor{Change: c.Change, Digest: fmt.Sprintf("%x", sum[:6])}
}

// Succeed sets the change and the trail of the record that replaces prev (nil: c is the first).
func (c *Control) Succeed(prev *Control) {
	c.Change, c.Trail = 1, nil
	if prev != nil {
		c.Change, c.Trail = prev.Change+1, joined(prev.Trail, []Ancestor{prev.ancestor()})
	}
}

// joined returns the newest of two trails.
func joined(a, b []Ancestor) []Ancestor {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(x, y Ancestor) int {
		return cmp.Or(cmp.Compare(x.Change, y.Change), cmp.Compare(x.Digest, y.Digest))
	})
	all = slices.Compact(all)
	return all[max(0, len(all)-keptTrail):]
}

// DescendsFrom reports whether c came from old by swaps, or is the same. Of a record older than its
// whole trail only the epochs tell: then c's history must have old's newest, if it reaches so far.
func (c Control) DescendsFrom(old Control) bool {
	a, oldest := old.ancestor(), c.Change
	if len(c.Trail) > 0 {
		oldest = c.Trail[0].Change
	}
	if a == c.ancestor() || slices.Contains(c.Trail, a) {
		return true
	}
	return old.Change < oldest && old.Epoch <= c.Epoch && c.began(old)
}

// began reports whether c's history has the newest epoch of old's, or lacks it for its age.
func (c Control) began(old Control) bool {
	if len(old.History) == 0 || len(c.History) == 0 {
		return true
	}
	newest := old.History[len(old.History)-1]
	trimmed := len(c.History) >= keptEpochs && newest.Epoch < c.History[len(c.History)-keptEpochs].Epoch
	return trimmed || slices.Contains(c.History, newest)
}

// Branches returns those of some records of one volume that no other descends from, the one with
// the highest epoch and change first. There is more than one if somebody changed a registry that
// went back.
func Branches(records []Control) (tips []Control) {
	for i, c := range records {
		if !slices.ContainsFunc(records, func(d Control) bool { return d.DescendsFrom(c) && !c.DescendsFrom(d) }) &&
			!slices.ContainsFunc(records[:i], func(d Control) bool { return d.ancestor() == c.ancestor() }) {
			tips = append(tips, c)
		}
	}
	slices.SortStableFunc(tips, func(a, b Control) int {
		return cmp.Or(cmp.Compare(b.Epoch, a.Epoch), cmp.Compare(b.Change, a.Change))
	})
	return tips
}

// keep returns the record with which a person keeps one branch of several: its home's forced
// takeover, in an epoch after those of all. It descends from all.
func (c Control) keep(all []Control) Control {
	next := c.Clone()
	for _, d := range all {
		next.Epoch, next.Change = max(next.Epoch, d.Epoch), max(next.Change, d.Change)
		next.Trail = joined(next.Trail, append(slices.Clone(d.Trail), d.ancestor()))
	}
	next.Epoch++
	next.Change++
	next.Members = []Member{c.Home}
	e := EpochStart{Epoch: next.Epoch, Forced: true}
	if n := len(c.History); n > 0 {
		e.Start = c.History[n-1].Start
	}
	next.Begin(e)
	return next
}
