// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// agreementsPage is what the page of that name shows.
type agreementsPage struct {
	Agreements paged[agreementLine]
	Q, Which   string
}

// agreementLine is an agreement.
type agreementLine struct {
	v1alpha1.StorageAgreement
	// Ours: it is this side's move. Why says how it is.
	Ours bool
	Why  string
}

func agreementOf(a v1alpha1.StorageAgreement) agreementLine {
	return agreementLine{a, a.Status.Move != "" && a.Status.Move == a.Status.Role, ready(a.Status.Conditions).Message}
}

// over are the states in which nothing is there any more.
var over = []v1alpha1.AgreementPhase{"Declined", "Expired", "Ended"}

// agreements reads all, each with what lists show.
func (v *visit) agreements() (all []agreementLine, forbidden string, err error) {
	rows, forbidden, err := v.rows("storageagreements", "With", "As", "Kind", "Site", "Amount", "Phase", "Move", "Purpose", "Message")
	for _, r := range rows {
		a := v1alpha1.StorageAgreement{Status: v1alpha1.StorageAgreementStatus{With: r["With"], Role: v1alpha1.AgreementParty(r["As"]),
			Kind: r["Kind"], Site: r["Site"], Amount: r.amount("Amount"), Phase: v1alpha1.AgreementPhase(r["Phase"]),
			Move: v1alpha1.AgreementParty(r["Move"]), Purpose: r["Purpose"]}}
		a.Name = r["Name"]
		l := agreementOf(a)
		l.Why = r["Message"]
		all = append(all, l)
	}
	return all, forbidden, err
}

// agreements shows those of this cluster's organization.
func agreements(v *visit) error {
	all, forbidden, err := v.agreements()
	if err != nil {
		return err
	}
	q := v.URL.Query()
	p := agreementsPage{Q: q.Get("q"), Which: cmp.Or(q.Get("which"), "open")}
	var lines []agreementLine
	for _, l := range all {
		a, is := l.StorageAgreement, slices.Contains(over, l.Status.Phase)
		if p.Which == "open" && is || p.Which == "over" && !is || p.Which == "ours" && !l.Ours {
			continue
		}
		if matches(p.Q, a.Name, a.Status.With, a.Status.Kind, a.Status.Site, string(a.Status.Phase), a.Status.Purpose) {
			lines = append(lines, l)
		}
	}
	slices.SortFunc(lines, func(a, b agreementLine) int {
		first := func(l agreementLine) int {
			if l.Ours {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(first(a), first(b)), cmp.Compare(a.Status.With, b.Status.With), cmp.Compare(a.Name, b.Name))
	})
	p.Agreements = page(lines, q, forbidden)
	return v.show("agreements", "Agreements", p, 0)
}

// agreementPage is what the page of that name shows.
type agreementPage struct {
	agreementLine
	ID string
	// Waits tells what the operator has not signed yet.
	Waits  string
	Moves  []move
	Counts *v1alpha1.StorageUsage
	Chart  template.HTML
	// Refused is why what was decided is not possible.
	Refused string
}

// move is something that this side can say.
type move struct {
	What, Label, Help string
	Asks              bool // for a reason
	Grave             bool
}

// agreement shows one: its terms, its story, and what can be said.
func agreement(v *visit) error {
	id := v.PathValue("id")
	p := agreementPage{ID: id}
	var a v1alpha1.StorageAgreement
	err := v.s.api.Get(v.Context(), client.ObjectKey{Name: id}, &a)
	switch {
	case apierrors.IsNotFound(err):
		return v.asked(id, err)
	case err != nil:
		return err
	}
	p.agreementLine = agreementOf(a)
	if r := ready(a.Status.Conditions); r.Reason == v1alpha1.ReasonRefused {
		p.Refused = r.Message
	}
	refresh := 0
	if p.Waits = unsigned(a); p.Waits != "" && p.Refused == "" {
		refresh = 2
	}
	if v.may("patch", "storageagreements") {
		p.Moves = moves(a, v.c.cfg.Now())
	}
	u := &v1alpha1.StorageUsage{}
	if err := v.s.api.Get(v.Context(), client.ObjectKey{Name: id}, u); err == nil {
		p.Counts = u
		if p.Chart, err = chart(u.Status.History, kindOf(a.Status.Kind).GiB); err != nil {
			return err
		}
	}
	return v.show("agreement", "Agreement "+short(id), p, refresh)
}

// asked shows a request that is not an agreement yet.
func (v *visit) asked(id string, missing error) error {
	var all v1alpha1.StorageRequestList
	if _, err := list(v.Context(), v.s.api, &all); err != nil {
		return err
	}
	i := slices.IndexFunc(all.Items, func(r v1alpha1.StorageRequest) bool { return string(r.UID) == id })
	if i < 0 {
		return missing
	}
	r := ready(all.Items[i].Status.Conditions)
	if r.Reason == v1alpha1.ReasonRefused || r.Reason == v1alpha1.ReasonNotFound {
		return wrong("The request %s is not possible: %s. Delete it (kubectl delete storagerequest %s), and ask anew.",
			all.Items[i].Name, r.Message, all.Items[i].Name)
	}
	return v.show("agreement", "Agreement "+short(id), agreementPage{ID: id, Waits: "the request is being signed"}, 2)
}

// unsigned tells what was decided here and is not signed yet.
func unsigned(a v1alpha1.StorageAgreement) string {
	if slices.Contains(over, a.Status.Phase) { // it came too late
		return ""
	}
	said := func(what string) bool {
		return slices.ContainsFunc(a.Status.Said, func(s v1alpha1.AgreementStatement) bool {
			return s.Side == a.Status.Role && strings.HasPrefix(s.What, what)
		})
	}
	for _, s := range []struct {
		is   bool
		what []string
	}{
		{a.Spec.Decision == v1alpha1.DecisionAccept, []string{"accepted"}}, {a.Spec.Decision == v1alpha1.DecisionDecline,
			[]string{"declined"}},
		{a.Spec.Notice != nil, []string{"notice", "withdrawn"}}, {a.Spec.Drained != nil, []string{"drained"}},
		{a.Spec.Unpaid != nil, []string{"not paid"}}, {a.Spec.HostGone != nil, []string{"the host is gone"}},
		{a.Spec.Delete != nil, []string{"the host deletes"}},
	} {
		if s.is && !slices.ContainsFunc(s.what, said) {
			return "the operator signs what was decided"
		}
	}
	return ""
}

// moves are what this side can say of an agreement as it is. What it can not say after all, the
// operator tells.
func moves(a v1alpha1.StorageAgreement, now time.Time) (out []move) {
	s, spec := a.Status, a.Spec
	kind := kindOf(s.Kind)
	host, phase := s.Role == v1alpha1.AgreementHost, string(s.Phase)
	on := slices.Contains([]string{"Agreed", "Active", "Ending", "Breached"}, phase)
	add := func(is bool, m move) {
		if is {
			out = append(out, m)
		}
	}
	undecided := phase == "Requested" &&
		spec.Decision == ""
	add(host && undecided, move{What: "accept", Label: "Accept", Help: fmt.Sprintf("%s of %s are promised to %s until %s.",
		bytesText(s.Amount),
		s.Offer, s.Guest, day(s.Until, "2006-01-02"))})
	add(host && undecided, move{What: "decline", Label: "Decline", Asks: true, Help: "The guest can ask anew."})
	add(!host && phase == "Requested" && spec.Notice == nil, move{What: "withdraw", Label: "Withdraw the request",
		Help: "If the host has answered meanwhile, the agreement stays."})
	add(on && spec.Notice == nil && phase != "Breached", move{What: "notice", Label: "Give notice", Asks: true, Grave: true,
		Help: fmt.Sprintf("The agreement ends when %s are over. It is not taken back.", daysText(s.Notice))})
	add(!host && on && spec.Drained == nil, move{What: "drained", Label: "Nothing is needed there any more", Grave: true, Asks: true,
		Help: kind.Drained})
	add(host && on && spec.Unpaid == nil, move{What: "unpaid", Label: "It was not paid", Grave: true, Asks: true,
		Help: fmt.Sprintf("This is notice too: the agreement ends when %s are over. It is not taken back.", daysText(s.Notice))})
	add(!host && on && spec.HostGone == nil, move{What: "hostGone", Label: "The host is gone", Grave: true, Asks: true,
		Help: kind.Gone})
	add(host && phase == "Breached" && spec.Delete == nil && s.GraceEnds != nil && !now.Before(s.GraceEnds.Time),
		move{What: "delete", Label: "Delete everything", Grave: true, Help: kind.Delete})
	return out
}

// say writes what was decided into the agreement's spec. The operator signs it.
func say(v *visit) error {
	id, what := v.PathValue("id"), v.FormValue("say")
	why := strings.TrimSpace(v.FormValue("why"))
	spec := map[string]any{}
	switch what {
	case "accept":
		spec["decision"] = v1alpha1.DecisionAccept
	case "decline":
		spec["decision"], spec["why"] = v1alpha1.DecisionDecline, why
	case "withdraw":
		return v.recall(id)
	case "notice", "drained", "delete", "unpaid", "hostGone":
		if v.FormValue("sure") != "yes" {
			return wrong("Nothing was said: tick that you are sure, and send the form again.")
		}
		spec[what] = v1alpha1.Statement{Why: why}
	default:
		return wrong("%q is nothing that can be said of an agreement: use a form of its page.", what)
	}
	text, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	a := &v1alpha1.StorageAgreement{ObjectMeta: metav1.ObjectMeta{Name: id}}
	if err := v.s.api.Patch(v.Context(), a, client.RawPatch(types.MergePatchType, text)); err != nil {
		return err
	}
	return v.to("/agreements/" + id)
}

// recall withdraws a request: its object is deleted, and the operator takes back what nobody has
// answered.
func (v *visit) recall(id string) error {
	var all v1alpha1.StorageRequestList
	if _, err := list(v.Context(), v.s.api, &all); err != nil {
		return err
	}
	i := slices.IndexFunc(all.Items, func(r v1alpha1.StorageRequest) bool { return string(r.UID) == id })
	if i < 0 {
		return wrong("The request was not made in this cluster: withdraw it where it was, or with `weir exchange end %s`.", short(id))
	}
	uid := all.Items[i].UID
	if err := v.s.api.Delete(v.Context(), &all.Items[i], client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return err
	}
	return v.to("/agreements/" + id)
}
