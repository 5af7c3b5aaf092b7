// SPDX-License-Identifier: Apache-2.0

package paper

import (
	"fmt"
	"time"
)

// Phase is the state of an agreement.
type Phase string

// Phases.
const (
	Requested Phase = "Requested"
	Declined  Phase = "Declined" // or withdrawn
	Expired   Phase = "Expired"  // nobody answered in time
	Agreed    Phase = "Agreed"   // the room is not there yet
	Active    Phase = "Active"
	Ending    Phase = "Ending"   // the guest brings elsewhere what it has there
	Breached  Phase = "Breached" // a side did not keep it
	Drained   Phase = "Drained"  // the guest needs nothing there any more
	Ended     Phase = "Ended"    // nothing is there
)

// Party is a side of an agreement.
type Party string

// Parties.
const (
	Nobody Party = ""
	Guest  Party = "Guest"
	Host   Party = "Host"
)

// Unconfirmed is how long after the host's deletion an agreement has ended also without the guest's
// receipt.
const Unconfirmed = 30 * 24 * time.Hour

// Life is how an agreement is.
type Life struct {
	Phase Phase
	// Move is whose move it is.
	Move Party
	// Ends is when the guest can write no more, and Grace when it can read no more; zero: it was
	// not agreed on.
	Ends, Grace time.Time
	// Breach is who did not keep it, in phase Breached and later; Why says what happened last, and
	// what is to be done.
	Breach Party
	Why    string
	erase  bool
	begun  bool
}

// Writes reports whether the guest may put something there.
func (l Life) Writes(now time.Time) bool {
	return l.begun && !l.erase && l.Phase != Drained && l.Phase != Ended && now.Before(l.Ends)
}

// Reads reports whether the guest may read what is there: until the host deletes it.
func (l Life) Reads() bool {
	return l.begun && !l.erase && l.Phase != Ended
}

// Erases reports whether the host may delete what is there (paper-5).
func (l Life) Erases(now time.Time) bool {
	return l.begun && (l.Phase == Drained || l.Phase == Ended || l.Breach == Host || !now.Before(l.Grace))
}

// Over reports whether nothing is there any more, or never was.
func (l Life) Over() bool { return l.Phase == Ended || l.Phase == Declined || l.Phase == Expired }

// Agrees reports whether the answer accepts exactly what the request says.
func (r *Request) Agrees(a *Answer) bool {
	return a != nil && a.Accepted != nil && a.ID == r.ID && a.Guest == r.Guest && a.Host == r.Host && a.Accepted.Terms == r.Digest()
}

// Takes reports whether, by this agreement, another copy of a volume of an organization may be at a
// site of the host at a time.
func (r *Request) Takes(a *Answer, owner, site string, now time.Time) bool {
	return r.Kind == KindCopy && r.Guest == owner && r.Site == site && r.Life(a, now).Writes(now)
}

// Life is how the agreement is at a time, with the host's answer, nil for none.
func (r *Request) Life(a *Answer, now time.Time) Life {
	day := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
	switch {
	case a != nil && a.Declined != nil:
		return Life{Phase: Declined, Why: "the host declined" + because(a.Declined)}
	case a != nil && r.Withdrawn != nil && r.Withdrawn.At.Before(a.said()):
		return Life{Phase: Declined, Why: "the guest had withdrawn the request" + because(r.Withdrawn)}
	case a != nil && !a.said().Before(r.AnswerBy):
		return Life{Phase: Expired, Why: "the host answered after " + day(r.AnswerBy)}
	case a != nil && !r.Agrees(a):
		return Life{Phase: Requested, Move: Host, Why: "the host's answer is to other terms: it has to answer these"}
	case a == nil && r.Withdrawn != nil:
		return Life{Phase: Declined, Why: "the guest withdrew the request" + because(r.Withdrawn)}
	case a == nil && !now.Before(r.AnswerBy):
		return Life{Phase: Expired, Why: "the host did not answer by " + day(r.AnswerBy)}
	case a == nil:
		return Life{Phase: Requested, Move: Host, Why: "the host accepts or declines, by " + day(r.AnswerBy)}
	}
	l := Life{Ends: r.Until, begun: a.Ready != nil, erase: a.Deleting != nil}
	what := "the term ends"
	for _, m := range []struct {
		said *Moment
		why  string
	}{{r.Noticed, "the guest gave notice"}, {a.Noticed, "the host gave notice"}, {a.Unpaid, "the host says that it was not paid"}} {
		if m.said == nil {
			continue
		}
		if end := m.said.At.Add(time.Duration(r.Notice)); end.Before(l.Ends) {
			l.Ends = end
		}
		what = m.why + because(m.said)
	}
	l.Grace = l.Ends.Add(time.Duration(r.Grace))
	switch {
	case r.HostGone != nil:
		l.Breach = Host
	case a.Deleting != nil && a.Ready != nil && r.Drained == nil && a.Deleting.At.Before(l.Grace):
		l.Breach = Host
	case a.Unpaid != nil, r.Drained == nil && (a.Deleting == nil || r.Kind == KindCopy) && !now.Before(l.Grace):
		l.Breach = Guest
	}
	noticed := r.Noticed != nil || a.Noticed != nil
	switch {
	case a.Deleted != nil && (r.Confirmed != nil || now.Sub(a.Deleted.At) >= Unconfirmed):
		l.Phase, l.Why = Ended, "nothing is there any more"
	case a.Deleted != nil:
		l.Phase, l.Move, l.Why = Drained, Guest, "the host deleted everything: the guest confirms it"
	case a.Deleting != nil && l.Breach == Host && r.HostGone == nil:
		l.Phase, l.Move, l.Why = Breached, Host, "the host deletes everything, before the time was over"
	case a.Deleting != nil && r.Kind == KindCopy && r.Drained == nil:
		l.Phase, l.Move, l.Why = Breached, Guest, "the host deletes; the guest's copies stay, and are counted, until it takes them away"
	case a.Deleting != nil:
		l.Phase, l.Move, l.Why = Drained, Host, "the host deletes everything"
	case r.Drained != nil:
		l.Phase, l.Move, l.Why = Drained, Host, "the guest needs nothing there any more: the host deletes it"
	case r.HostGone != nil:
		l.Phase, l.Move, l.Why = Breached, Host, "the guest says that the host is gone"+because(r.HostGone)+
			": it goes on without; the host deletes everything when it is back"
	case !now.Before(l.Grace):
		may := "the host may delete everything"
		if r.Kind == KindCopy { // nobody deletes a copy by force
			may = "its copies stay, and are counted, until it takes them away"
		}
		l.Phase, l.Move, l.Why = Breached, Host, what+", and the guest did not drain by "+day(l.Grace)+": "+may
	case a.Unpaid != nil:
		l.Phase, l.Move, l.Why = Breached, Guest, fmt.Sprintf("%s: the guest can write until %s, and read until %s", what, day(l.Ends),
			day(l.Grace))
	case a.Ready == nil && !noticed:
		l.Phase, l.Move, l.Why = Agreed, Host, "the host makes the room"
	case noticed, !now.Before(l.Ends.Add(-time.Duration(r.Notice))):
		l.Phase, l.Move, l.Why = Ending, Guest, fmt.Sprintf("%s: the guest brings elsewhere what it has there, by %s; it can read until %s",
			what, day(l.Ends), day(l.Grace))
	default:
		l.Phase, l.Why = Active, "until "+day(l.Ends)
	}
	return l
}

// said is when the host decided.
func (a *Answer) said() time.Time {
	switch {
	case a.Accepted != nil:
		return a.Accepted.At
	case a.Declined != nil:
		return a.Declined.At
	}
	return time.Time{}
}

func because(m *Moment) string {
	if m.Why == "" {
		return ""
	}
	return " (" + m.Why + ")"
}
