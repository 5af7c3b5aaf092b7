// SPDX-License-Identifier: Apache-2.0

// Package proof checks the papers of an agreement that somebody holds in his hand, by their
// signatures alone: no registry is asked. So each side can show what the other signed, also when
// the agreement is over and the registry has forgotten it (ADR 34).
//
//   - proof-1: a paper is genuine if a person or an operator of its organization signed exactly it,
//     with a certificate for which an authority of that organization vouched at that time, as the
//     charter says (signed-2, signed-3). A certificate that has ended since counts.
//   - proof-2: what both agree on follows only if both papers are genuine, and if the host accepts
//     the words that the guest signed (paper-2).
//   - proof-3: who spoke, and when, is the word of the organization that signed. It names nobody of
//     another organization, and nothing that was said after the signature.
//
// Times are by the clock of who signed. A gatekeeper compared them with its own when the paper was
// written; nobody can do that later.
package proof

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/exchange"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

// Paper is a record of the registry with its writer's signature.
type Paper struct {
	Name  string
	Value []byte
}

// Report is what the papers of an agreement amount to.
type Report struct {
	Agreement string `json:"agreement"` // its ID
	Genuine   bool   `json:"genuine"`
	// Problems say why it is not genuine, and what to do.
	Problems []string `json:"problems"`
	Papers   []Signed `json:"papers"`
	// Said is what the papers say, in order of time.
	Said []Said `json:"said"`
	// What follows from papers that are genuine. Of others it is empty.
	Terms  *paper.Terms `json:"terms,omitempty"`
	Digest string       `json:"digest,omitempty"`
	Phase  paper.Phase  `json:"phase,omitempty"`
	Move   paper.Party  `json:"move,omitempty"`
	Why    string       `json:"why,omitempty"`
}

// Signed is one side's paper, and who signed it.
type Signed struct {
	Name    string      `json:"name"`
	Side    paper.Party `json:"side"`
	Genuine bool        `json:"genuine"`
	// By is the URI of the certificate, Part what its owner is, and At when he signed, by his
	// clock; empty: nobody signed it whom the charter knows.
	By   string    `json:"by,omitempty"`
	Part pki.Part  `json:"part,omitempty"`
	At   time.Time `json:"at,omitzero"`
}

// Said is one statement of a paper.
type Said struct {
	Paper string      `json:"paper"`
	Side  paper.Party `json:"side"`
	What  string      `json:"what"`
	At    time.Time   `json:"at"`
	By    string      `json:"by"`
	Why   string      `json:"why,omitempty"`
}

// Doubt adds a reason not to believe what was checked.
func (r *Report) Doubt(format string, a ...any) {
	r.Genuine, r.Problems = false, append(r.Problems, fmt.Sprintf(format, a...))
}

// Of returns who signed a paper of the report.
func (r *Report) Of(name string) Signed {
	for _, s := range r.Papers {
		if s.Name == name {
			return s
		}
	}
	return Signed{Name: name}
}

// again is what one does about a paper that is not what was signed.
const again = "it binds nobody: compare it with the object at the other side, and take this one from the cluster again"

// Check checks the papers that an object has for the agreement of an ID, with the charter that the
// seal knows. What follows is as of now. It changes nothing, and may be called at the same time.
func Check(seal *signed.Seal, id string, papers []Paper, now time.Time) Report {
	r := Report{Agreement: id, Genuine: true, Problems: []string{}, Papers: []Signed{}, Said: []Said{}}
	request, answer := paper.RequestName(id), paper.AnswerName(id)
	papers = slices.Clone(papers)
	slices.SortStableFunc(papers, func(a, b Paper) int { return -strings.Compare(a.Name, b.Name) }) // the request first
	var says paper.Paper
	for i, p := range papers {
		switch {
		case p.Name != request && p.Name != answer:
			r.Doubt("paper %s: it is not of agreement %s, which has %s and %s: check it with the object of its own agreement", p.Name, id,
				request, answer)
			continue
		case i > 0 && papers[i-1].Name == p.Name:
			r.Doubt("paper %s: it is there twice: leave only the one that the cluster has", p.Name)
			continue
		}
		is, signature := r.read(seal, p)
		r.Papers = append(r.Papers, signature)
		if p.Name == request {
			says.Request = is.Request
		} else {
			says.Answer = is.Answer
		}
	}
	if !slices.ContainsFunc(papers, func(p Paper) bool { return p.Name == request }) {
		r.Doubt("agreement %s: it has no paper %s, so nothing says what was agreed on: take the object from the cluster again, with its "+
			"status", id, request)
	}
	r.tells(id, says)
	if r.Genuine && says.Answer != nil {
		r.matches(says.Request, says.Answer)
	}
	if r.Genuine {
		l := says.Request.Life(says.Answer, now)
		terms := says.Request.Terms
		r.Terms, r.Digest, r.Phase, r.Move, r.Why = &terms, terms.Digest(), l.Phase, l.Move, l.Why
	}
	return r
}

// read checks one paper on its own (proof-1). It returns what the paper says also if it is not
// genuine, for people to see.
func (r *Report) read(seal *signed.Seal, p Paper) (is paper.Paper, s Signed) {
	s = Signed{Name: p.Name, Side: paper.Guest}
	if p.Name == paper.AnswerName(r.Agreement) {
		s.Side = paper.Host
	}
	key := string(federation.KindPaper) + "/" + p.Name
	unread := federation.Decode(string(federation.KindPaper), p.Name, p.Value, &is)
	if unread != nil {
		is = paper.Paper{}
	}
	who, at, err := seal.By(key, p.Value)
	if err == nil {
		s.By, s.Part, s.At = who.String(), who.Part, at.UTC()
		err = seal.Strict(key, p.Value, signed.Known{First: true}, nil)
	}
	if err == nil {
		err = unread
	}
	if err == nil {
		err = is.WrittenBy(signed.AuthorOf(who)) // an administrator endorses records, and agrees to nothing
	}
	switch {
	case errors.Is(err, pki.ErrSignature):
		r.Doubt("paper %s: %v: if that authority is the organization's, check with the newest charter; else %s", p.Name, err, again)
	case err != nil:
		r.Doubt("paper %s: %v: %s", p.Name, err, again)
	default:
		s.Genuine = r.spoken(p.Name, is, who, at)
	}
	return is, s
}

// spoken checks who is said to have spoken in a paper, and when (proof-3).
func (r *Report) spoken(name string, is paper.Paper, who pki.Identity, at time.Time) bool {
	ours := strings.TrimRight(pki.Identity{Federation: who.Federation, Organization: who.Organization}.String(), "/") + "/"
	well := true
	for _, m := range statements(is) {
		if !strings.HasPrefix(m.By, ours) {
			r.Doubt("paper %s: %s is said by %s, and %s signed it: %s", name, m.What, m.By, who, again)
			well = false
		}
		if m.At.After(at.Add(2 * paper.Slack)) { // as much as clocks may differ from the gatekeeper's, twice
			r.Doubt("paper %s: %s is said at %s, and it was signed at %s: %s", name, m.What, m.At.UTC().Format(time.RFC3339),
				at.UTC().Format(time.RFC3339), again)
			well = false
		}
	}
	return well
}

// statements are what one paper says.
func statements(p paper.Paper) []exchange.Statement {
	a := exchange.Agreement{Answer: p.Answer}
	if p.Request != nil {
		a.Request = *p.Request
	}
	return slices.DeleteFunc(a.Said(), func(s exchange.Statement) bool { return s.Side == paper.Guest && p.Request == nil })
}

// tells notes what both papers say.
func (r *Report) tells(id string, p paper.Paper) {
	for _, s := range statements(p) {
		name := paper.RequestName(id)
		if s.Side == paper.Host {
			name = paper.AnswerName(id)
		}
		r.Said = append(r.Said, Said{Paper: name, Side: s.Side, What: s.What, At: s.At.UTC(), By: s.By, Why: s.Why})
	}
}

// matches checks that an answer is one to a request (proof-2).
func (r *Report) matches(q *paper.Request, a *paper.Answer) {
	name := paper.AnswerName(q.ID)
	switch {
	case a.Guest != q.Guest || a.Host != q.Host:
		r.Doubt("paper %s: it is between %q and %q, and the request between %q and %q: %s", name, a.Guest, a.Host, q.Guest, q.Host, again)
	case a.Accepted != nil && !q.Agrees(a):
		r.Doubt("paper %s: it accepts terms with digest %s, and those of the request have %s: the host did not agree to these words; "+
			"ask both for what they hold", name, a.Accepted.Terms, q.Digest())
	}
}
