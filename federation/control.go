// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"fmt"
	"slices"

	"github.com/weir-storage/weir/federation/epoch"
)

// Revision is a registry revision: of a record, the one that last changed it. Zero means "does not
// exist".
type Revision int64

// Member is a gateway's log on its pool. The same gateway with another incarnation, or another log,
// is another member (protocol-3).
type Member struct {
	Gateway     string `json:"gateway"`
	Site        string `json:"site"`
	Incarnation string `json:"incarnation"` // of the pool
	// Log is the identity of the log, which a log that begins anew on the same pool changes. It is
	// empty for a log from a release that had none, and where a gateway is meant and not a log.
	Log string `json:"log,omitempty"`
}

// String is "gateway@site/incarnation", and "/log" if there is one.
func (m Member) String() string {
	s := m.Gateway + "@" + m.Site + "/" + m.Incarnation
	if m.Log != "" {
		s += "/" + m.Log
	}
	return s
}

// Pool returns m without its log.
func (m Member) Pool() Member {
	m.Log = ""
	return m
}

// EpochStart says where in the log an epoch's first record is.
type EpochStart = epoch.Start

// Position is a place in a volume's log.
type Position = epoch.Position

// Control is a volume's control record (protocol-1): who may append, who must have fsynced, and how
// it came to that.
type Control struct {
	Volume string `json:"volume"`
	// Epoch is at least 1 and never goes back; a new home means a new epoch.
	Epoch uint64 `json:"epoch"`
	// Change counts the swaps of this record; SwapControl sets it. Unlike a revision it survives a
	// registry that was rebuilt, so Guard compares it (protocol-7's "control version").
	Change uint64 `json:"change"`
	// Home is one of Members.
	Home    Member   `json:"home"`
	Members []Member `json:"members"`
	// History has ascending epochs. Entries are appended; of the older ones, all but the forced are
	// left out in time.
	History []EpochStart `json:"history"`
	// Trail has the records that this one came from, by ascending change, all but the oldest.
	// SwapControl appends to it, and a reconciliation joins trails (protocol-7).
	Trail []Ancestor `json:"trail,omitempty"`
}

// Clone copies c deeply.
func (c Control) Clone() Control {
	c.Members = slices.Clone(c.Members)
	c.History = slices.Clone(c.History)
	c.Trail = slices.Clone(c.Trail)
	return c
}

// Same reports whether c and d say the same; Change and Trail, which the registry's client sets,
// are not compared. A caller that reads back after ErrUnknown uses it.
func (c Control) Same(d Control) bool {
	return c.Volume == d.Volume && c.Epoch == d.Epoch && c.Home == d.Home &&
		slices.Equal(c.Members, d.Members) && slices.Equal(c.History, d.History)
}

// IsMember reports whether m, with exactly that incarnation and log, is a member.
func (c Control) IsMember(m Member) bool { return slices.Contains(c.Members, m) }

// CountsOn reports whether a log on m's pool is a member, whichever it is.
func (c Control) CountsOn(m Member) bool {
	return slices.ContainsFunc(c.Members, func(x Member) bool { return x.Pool() == m.Pool() })
}

// Validate checks the record on its own; errors wrap ErrInvalid.
func (c Control) Validate() error {
	bad := func(format string, a ...any) error {
		return invalid("check", "control", c.Volume, fmt.Sprintf(format, a...))
	}
	if err := CheckName("volume", c.Volume); err != nil {
		return err
	}
	if c.Epoch == 0 {
		return bad("epoch is 0: the first epoch is 1")
	}
	if !c.IsMember(c.Home) {
		return bad("home %v is not among the members %v: add it", c.Home, c.Members)
	}
	seen := map[string]bool{}
	for _, m := range c.Members {
		if m.Gateway == "" || m.Site == "" || m.Incarnation == "" {
			return bad("member %v lacks gateway, site or incarnation: give all three", m)
		}
		if seen[m.Gateway] {
			return bad("gateway %s is a member twice: remove its old incarnation", m.Gateway)
		}
		seen[m.Gateway] = true
	}
	last := uint64(0)
	for _, h := range c.History {
		if h.Epoch <= last || h.Epoch > c.Epoch {
			return bad("history epoch %d follows %d in epoch %d: epochs in it ascend from 1 to the current one", h.Epoch, last, c.Epoch)
		}
		last = h.Epoch
	}
	return nil
}

// CheckSwap checks that next may replace prev (nil: next is the first); errors wrap ErrInvalid.
// Numbers never go back, a home does not change within an epoch, and of the history of prev the
// newest entry and every forced one stay, and none is changed. An entry that is added belongs to
// prev's epoch or a later one.
func CheckSwap(prev *Control, next Control) error {
	if err := next.Validate(); err != nil {
		return err
	}
	if prev == nil {
		return nil
	}
	bad := func(format string, a ...any) error {
		return invalid("swap", "control", next.Volume, fmt.Sprintf(format, a...))
	}
	switch {
	case next.Volume != prev.Volume:
		return bad("volume changes from %s: a control record stays with its volume", prev.Volume)
	case next.Epoch < prev.Epoch:
		return bad("epoch goes back from %d to %d: read the record again and take a later epoch", prev.Epoch, next.Epoch)
	case next.Epoch == prev.Epoch && next.Home != prev.Home:
		return bad("home changes from %v to %v within epoch %d: a new home takes the next epoch", prev.Home, next.Home, prev.Epoch)
	}
	return checkHistory(prev, next, bad)
}

// keptEpochs is how many entries the history of a control record has at most, but for forced ones:
// more than any log that is still of use is behind, and few enough for a registry's value.
const keptEpochs = 256

// Begin appends an epoch to the history, and leaves out what is no longer needed of it.
func (c *Control) Begin(e EpochStart) {
	c.History = append(c.History, e)
	surplus := len(c.History) - keptEpochs
	c.History = slices.DeleteFunc(c.History, func(e EpochStart) bool { surplus--; return surplus >= 0 && !e.Forced })
}

func checkHistory(prev *Control, next Control, bad func(string, ...any) error) error {
	newest := uint64(0)
	for i, h := range prev.History {
		newest = h.Epoch
		if (h.Forced || i == len(prev.History)-1) && !slices.Contains(next.History, h) {
			return bad("history %v lacks %v: the newest entry and forced ones stay", next.History, h)
		}
	}
	for _, h := range next.History {
		switch {
		case h.Epoch <= newest && !slices.Contains(prev.History, h):
			return bad("history %v has %v, which %v has not: entries are only appended", next.History, h, prev.History)
		case h.Epoch > newest && h.Epoch < prev.Epoch:
			return bad("history gains epoch %d, which ended before epoch %d: only current and later epochs are added", h.Epoch, prev.Epoch)
		}
	}
	return nil
}
