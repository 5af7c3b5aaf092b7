// SPDX-License-Identifier: Apache-2.0

package lending

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
)

// show writes the status of an agreement.
func (r *agreements) show(obj *v1alpha1.StorageAgreement, a agreed, out outcome.Outcome) {
	t, s := a.Request.Terms, &obj.Status
	s.ObservedGeneration, s.Role = obj.Generation, v1alpha1.AgreementGuest
	if t.Host == r.Organization {
		s.Role = v1alpha1.AgreementHost
	}
	s.Guest, s.Host, s.With, s.Offer, s.Kind, s.Site = t.Guest, t.Host, with(t, r.Organization), t.Offer, string(t.Kind), t.Site
	s.Amount, s.Price, s.Terms, s.Purpose, s.Until = plan.Quantity(t.Amount), t.Price, t.Text, a.Request.Purpose, stamp(t.Until)
	s.Notice, s.Grace = metav1.Duration{Duration: time.Duration(t.Notice)}, metav1.Duration{Duration: time.Duration(t.Grace)}
	s.Phase, s.Move, s.Ends, s.GraceEnds = v1alpha1.AgreementPhase(a.Phase), party(a.Move), stamp(a.Ends), stamp(a.Life.Grace)
	if s.Endpoint = ""; a.Answer != nil && a.Answer.Ready != nil {
		s.Endpoint = a.Answer.Ready.Endpoint
	}
	s.Rooms = nil
	for _, p := range r.Mirror.Papers(paper.RoomName(t.ID, "")) {
		if p.Room != nil {
			s.Rooms = append(s.Rooms, v1alpha1.AgreementRoom{Gateway: p.Room.Gateway, Amount: *plan.Quantity(p.Room.Bytes)})
		}
	}
	s.Said = nil
	for _, x := range a.Said() {
		s.Said = append(s.Said, v1alpha1.AgreementStatement{At: *stamp(x.At), Side: party(x.Side), What: x.What, Why: x.Why, By: x.By})
	}
	now, mine := r.Now(), s.Move != "" && s.Move == s.Role
	set := func(kind string, is bool, why string) {
		plan.SetCondition(&s.Conditions, obj.Generation, now, kind, plan.State{True: is, Reason: string(a.Phase), Message: why})
	}
	set(v1alpha1.ConditionMoveNeeded, mine, a.Why)
	set(v1alpha1.ConditionUsable, a.Writes(now), a.Why)
	show(&s.Conditions, obj.Generation, now, out, plan.State{True: a.Breach == paper.Nobody, Reason: string(a.Phase), Message: a.Why})
}

// kept is a paper that an object has, as it was signed; nil: it has none that counts.
func (r *agreements) kept(obj *v1alpha1.StorageAgreement, name string) *paper.Paper {
	i := slices.IndexFunc(obj.Status.Papers, func(k v1alpha1.SignedPaper) bool { return k.Name == name })
	if i < 0 {
		return nil
	}
	p, value := new(paper.Paper), []byte(obj.Status.Papers[i].Value)
	if federation.Decode(string(federation.KindPaper), name, value, p) != nil || p.Name() != name ||
		r.Signed != nil && r.Signed(name, value) != nil {
		return nil
	}
	return p
}

// keep puts both sides' papers, as they were signed, into the status. Only what changed is read.
// One that does not say any more what was signed before does not replace that (lending-6): earlier
// tells it.
func (r *agreements) keep(ctx context.Context, obj *v1alpha1.StorageAgreement, a agreed) (earlier, err error) {
	names := []string{paper.AnswerName(a.Request.ID), paper.RequestName(a.Request.ID)}
	kept := slices.DeleteFunc(slices.Clone(obj.Status.Papers), func(p v1alpha1.SignedPaper) bool {
		return !slices.Contains(names, p.Name)
	})
	for _, name := range names {
		p, ok := r.Mirror.Paper(name)
		i := slices.IndexFunc(kept, func(k v1alpha1.SignedPaper) bool { return k.Name == name })
		if !ok || i >= 0 && kept[i].Revision == p.Revision {
			continue
		}
		was := r.kept(obj, name)
		less := was != nil && paper.Follows(*was, p.Paper) != nil
		var is paper.At
		if !less {
			if is, err = r.Book.GetPaper(ctx, name); err != nil {
				return earlier, fmt.Errorf("keep paper %s: %w", name, err)
			}
			less = was != nil && paper.Follows(*was, is.Paper) != nil // it changed since
		}
		if less {
			earlier = outcome.Stopped(v1alpha1.ReasonNotFound, fmt.Sprintf("the registry has another %s than the one in status.papers, "+
				"and it does not say all that was signed then: the registry went back, or somebody took words away; see why, keep a copy "+
				"of this object, which `weir exchange verify` checks, and delete it to go on by what the registry has", name))
			continue
		}
		if i >= 0 {
			kept = slices.Delete(kept, i, i+1)
		}
		kept = append(kept, v1alpha1.SignedPaper{Name: name, Revision: is.Revision, Value: string(is.Value)})
	}
	slices.SortFunc(kept, func(a, b v1alpha1.SignedPaper) int { return strings.Compare(a.Name, b.Name) })
	obj.Status.Papers = kept
	return earlier, nil
}
