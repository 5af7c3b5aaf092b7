// SPDX-License-Identifier: Apache-2.0

package proof_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/exchange/proof"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

const id = "6f1c2b6e-0000-4000-8000-000000000001"

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// fed is a federation of A, which lends, and B, which borrows.
type fed struct {
	*testing.T
	founding *pki.Authority
	of       map[string]*pki.Authority // by organization
	charter  pki.Charter
	at       time.Time // by the clocks of who signs
}

func authority(t *testing.T, organization string) *pki.Authority {
	t.Helper()
	a, err := pki.NewOrganizationAuthority("demo", organization, now, 30*24*time.Hour)
	if organization == "" {
		a, err = pki.NewAuthority("demo", now, 30*24*time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func root(t *testing.T, a *pki.Authority) string {
	t.Helper()
	p, err := a.Pair()
	if err != nil {
		t.Fatal(err)
	}
	return string(p.Cert)
}

func newFed(t *testing.T) *fed {
	f := &fed{T: t, founding: authority(t, ""), of: map[string]*pki.Authority{}, at: now,
		charter: pki.Charter{Federation: "demo", Serial: 1, Made: now, SignedSince: now}}
	for _, name := range []string{"A", "B"} {
		f.of[name] = authority(t, name)
		f.charter.Set(pki.Organization{Name: name, Authorities: []string{root(t, f.of[name])}})
	}
	return f
}

func who(organization string, part pki.Part) pki.Identity {
	return pki.Identity{Federation: "demo", Organization: organization, Site: "s", Gateway: "x", Part: part}
}

// says is a paper that somebody signed with a certificate of an authority, valid for an hour.
func (f *fed) says(a *pki.Authority, by pki.Identity, p paper.Paper) proof.Paper {
	f.Helper()
	pair, err := a.Issue(by, nil, f.at, time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	creds, err := pki.Load([]byte(root(f.T, a)), pair, func() time.Time { return f.at })
	if err != nil {
		f.Fatal(err)
	}
	value, err := federation.Encode(p)
	if err == nil {
		value, err = signed.New(creds, nil, nil).Endorse("paper/"+p.Name(), value)
	}
	if err != nil {
		f.Fatal(err)
	}
	return proof.Paper{Name: p.Name(), Value: value}
}

func moment(of string, at time.Time) *paper.Moment {
	return &paper.Moment{At: at, By: who(of, "").String()}
}

func request() *paper.Request {
	return &paper.Request{Terms: paper.Terms{ID: id, Guest: "B", Host: "A", Offer: "disks", Kind: paper.KindStore, Site: "a",
		Amount: 1 << 40, Until: now.Add(1000 * time.Hour), Notice: quantity.Duration(24 * time.Hour), Grace: quantity.Duration(time.Hour),
		AnswerBy: now.Add(100 * time.Hour)}, Made: *moment("B", now)}
}

func answer(r *paper.Request) *paper.Answer {
	return &paper.Answer{ID: id, Guest: "B", Host: "A", Accepted: &paper.Acceptance{Moment: *moment("A", now), Terms: r.Digest()},
		Ready: &paper.Place{Endpoint: "https://store.example.org"}}
}

// check checks papers long after all certificates have ended.
func (f *fed) check(id string, papers ...proof.Paper) proof.Report {
	f.Helper()
	creds, err := pki.Reader([]byte(root(f.T, f.founding)), "", func() time.Time { return now.Add(500 * 24 * time.Hour) })
	if err != nil {
		f.Fatal(err)
	}
	jws, err := f.founding.SignCharter(f.charter)
	if err == nil {
		_, err = creds.Adopt(jws)
	}
	if err != nil {
		f.Fatal(err)
	}
	return proof.Check(signed.New(creds, nil, nil), id, papers, creds.Now())
}

// both are the papers of an agreement that has ended, as a person and an operator signed them.
func (f *fed) both() (r, a proof.Paper) {
	f.Helper()
	q := request()
	x := answer(q)
	f.at = now.Add(time.Hour)
	q.Drained, x.Deleting, q.Confirmed = moment("B", f.at), moment("A", f.at), moment("B", f.at)
	x.Deleted = &paper.Deletion{Moment: *moment("A", f.at), Objects: 7, Bytes: 1 << 30}
	return f.says(f.of["B"], who("B", pki.PartPerson), paper.Paper{Request: q}),
		f.says(f.of["A"], who("A", pki.PartOperator), paper.Paper{Answer: x})
}

// Both receipts count, long after the certificates and the authorities have ended.
func TestReceipts(t *testing.T) {
	f := newFed(t)
	r, a := f.both()
	is := f.check(id, a, r)
	if !is.Genuine || len(is.Problems) > 0 || is.Phase != paper.Ended || is.Digest != request().Digest() || is.Terms.Amount != 1<<40 {
		t.Fatalf("%+v", is)
	}
	if s := is.Papers; len(s) != 2 || s[0].By != "weir://demo/B/s/x" || s[0].Part != pki.PartPerson || !s[0].At.Equal(now.Add(time.Hour)) ||
		s[1].Side != paper.Host || s[1].Part != pki.PartOperator || !s[1].Genuine {
		t.Errorf("%+v", s)
	}
	var said []string
	for _, s := range is.Said {
		said = append(said, s.What)
	}
	if got := strings.Join(said, ", "); got != "asked, accepted, drained, confirmed, the host deletes, deleted, 7 objects of 1Gi" {
		t.Error(got)
	}

	// So it is when the authority was replaced, and the organization left.
	f.charter.Set(pki.Organization{Name: "A", Authorities: []string{root(t, authority(t, "A"))},
		Former: []pki.Former{{Authority: root(t, f.of["A"]), Until: now.Add(2 * time.Hour)}}})
	b := *f.charter.Find("B")
	b.Expelled = &pki.Expulsion{At: now.Add(2 * time.Hour), Why: "a test"}
	f.charter.Set(b)
	if is := f.check(id, r, a); !is.Genuine {
		t.Errorf("%+v", is)
	}
	// A request alone is one that waits, or waited.
	if is := f.check(id, f.says(f.of["B"], who("B", pki.PartPerson), paper.Paper{Request: request()})); !is.Genuine ||
		is.Phase != paper.Expired {
		t.Errorf("%+v", is)
	}
}

// swapped is a value with the signature of another.
func swapped(t *testing.T, value, other []byte) []byte {
	t.Helper()
	var a, b map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(value, &a), json.Unmarshal(other, &b)); err != nil {
		t.Fatal(err)
	}
	a["signature"] = b["signature"]
	out, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What is not what both signed is refused, and it says why.
func TestForgeries(t *testing.T) {
	f := newFed(t)
	r, a := f.both()
	person, operator := who("B", pki.PartPerson), who("A", pki.PartOperator)
	ofB := func(change func(*paper.Request)) proof.Paper {
		q := request()
		change(q)
		return f.says(f.of["B"], person, paper.Paper{Request: q})
	}
	ofA := func(change func(*paper.Answer)) proof.Paper {
		x := answer(request())
		change(x)
		return f.says(f.of["A"], operator, paper.Paper{Answer: x})
	}
	changed := func(p proof.Paper, from, to string) proof.Paper {
		t.Helper()
		value := bytes.Replace(p.Value, []byte(from), []byte(to), 1)
		if bytes.Equal(value, p.Value) {
			t.Fatalf("%s has no %s", p.Value, from)
		}
		return proof.Paper{Name: p.Name, Value: value}
	}
	as := func(name string, p proof.Paper) proof.Paper { return proof.Paper{Name: name, Value: p.Value} }
	asked := paper.Paper{Request: request()}
	f.at = now // he endorsed what was there before the charter asked for signatures
	endorsed := f.says(f.founding, who("B", pki.PartAdministrator), asked)
	f.at = now.Add(time.Hour)
	its, theirs := paper.RequestName(id), paper.AnswerName(id)
	const other = "6f1c2b6e-0000-4000-8000-000000000002"
	for _, c := range []struct {
		name, id string
		papers   []proof.Paper
		why      string
	}{
		{"a changed byte in the request", id, []proof.Paper{changed(r, `"amount":"1Ti"`, `"amount":"2Ti"`), a},
			"is of paper/request/" + id + " and of another record"},
		{"a changed byte in the answer", id, []proof.Paper{r, changed(a, `"bytes":"1Gi"`, `"bytes":"2Gi"`)}, "and of another record"},
		{"a changed byte in the signature", id, []proof.Paper{r, changed(a, `"signature":"`, `"signature":"A`)}, "signature refused"},
		{"no signature", id, []proof.Paper{changed(r, `"signature":"`, `"because":"`), a}, "it has no signature"},
		{"the signature of the other paper", id,
			[]proof.Paper{r, {Name: theirs, Value: swapped(t, a.Value, r.Value)}}, "and of another record"},
		{"signed by the other side", id, []proof.Paper{f.says(f.of["A"], operator, asked), a},
			`it is the word of "B"`},
		{"signed by a gateway", id, []proof.Paper{f.says(f.of["B"], who("B", pki.PartGateway), asked), a},
			`a person of "B" writes it, or an operator`},
		{"an authority that the charter does not have", id,
			[]proof.Paper{f.says(authority(t, "B"), person, asked), a}, "check with the newest charter"},
		{"an organization that the charter does not have", id,
			[]proof.Paper{f.says(authority(t, "C"), who("C", pki.PartPerson), asked), a},
			`organization "C" is not of federation demo`},
		{"the founding authority in an organization's name", id,
			[]proof.Paper{f.says(f.founding, person, asked), a}, "signature refused"},
		{"an administrator's endorsement", id, []proof.Paper{endorsed, a}, `a person of "B" writes it, or an operator`},
		{"an answer to other terms", id, []proof.Paper{ofB(func(q *paper.Request) { q.Amount++ }), a},
			"the host did not agree to these words"},
		{"an answer to another guest", id, []proof.Paper{r, ofA(func(x *paper.Answer) { x.Guest = "C" })}, `it is between "C" and "A"`},
		{"another object's name", other, []proof.Paper{r, a}, "it is not of agreement " + other},
		{"another object's papers", other, []proof.Paper{as(paper.RequestName(other), r), as(paper.AnswerName(other), a)},
			"of paper/request/" + id + " and of another record"},
		{"each in the other's place", id, []proof.Paper{as(theirs, r), as(its, a)}, "and of another record"},
		{"no request", id, []proof.Paper{a}, "it has no paper request/" + id},
		{"nothing", id, nil, "it has no paper request/" + id},
		{"one twice", id, []proof.Paper{r, r, a}, "it is there twice"},
		{"no record", id, []proof.Paper{as(its, proof.Paper{Value: []byte("{")}), a}, "it is no record"},
		{"empty", id, []proof.Paper{as(its, proof.Paper{}), a}, "it is no record"},
		{"somebody else speaks", id, []proof.Paper{r, ofA(func(x *paper.Answer) { x.Noticed = moment("B", now) })},
			"notice by the host is said by weir://demo/B/s/x, and weir://demo/A/s/x signed it"},
		{"somebody whose name begins so", id, []proof.Paper{ofB(func(q *paper.Request) { q.Made.By = "weir://demo/BB/s/x" }), a},
			"asked is said by weir://demo/BB/s/x"},
		{"it was said after it was signed", id,
			[]proof.Paper{r, ofA(func(x *paper.Answer) { x.Noticed = moment("A", now.Add(4*time.Hour)) })},
			"is said at 2026-11-01T16:00:00Z, and it was signed at 2026-11-01T13:00:00Z"},
		{"a field of a later release", id, []proof.Paper{changed(r, `"version":1`, `"version":2`), a}, "format"},
	} {
		t.Run(c.name, func(t *testing.T) {
			is := f.check(c.id, c.papers...)
			if is.Genuine || is.Terms != nil || is.Phase != "" || !strings.Contains(strings.Join(is.Problems, "\n"), c.why) {
				t.Errorf("want … %s …, got %+v", c.why, is)
			}
			for _, p := range is.Problems {
				if !strings.Contains(p, c.id) {
					t.Errorf("%q does not say of which agreement", p)
				}
			}
		})
	}
	if is := f.check(id, r, a); !is.Genuine {
		t.Errorf("what they were made of: %+v", is)
	}
}
