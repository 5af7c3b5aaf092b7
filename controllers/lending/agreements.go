// SPDX-License-Identifier: Apache-2.0

package lending

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/mirror"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/exchange"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/view"
)

// agreements reconciles StorageAgreements: it makes them by the papers of both sides, and says what
// people decide in them.
type agreements struct{ *room }

// agreed is an agreement as it is.
type agreed struct{ exchange.Agreement }

// next are the times at which its state may change by itself.
func (a agreed) next(now time.Time) []time.Time {
	at := []time.Time{a.Ends, a.Grace}
	if a.Answer == nil {
		at = append(at, a.Request.AnswerBy)
	}
	if !a.Ends.IsZero() {
		at = append(at, a.Ends.Add(-time.Duration(a.Request.Notice)))
	}
	if a.Answer != nil && a.Answer.Deleted != nil {
		at = append(at, a.Answer.Deleted.At.Add(paper.Unconfirmed))
	}
	if a.Over() {
		at = append(at, a.forgotten(now))
	}
	return slices.DeleteFunc(at, func(t time.Time) bool { return !t.After(now) })
}

// forgotten is when this side deletes its papers of an agreement that is over: somewhat later than
// it may, since clocks differ.
func (a agreed) forgotten(now time.Time) time.Time {
	return a.Request.KeptUntil(a.Answer, now).Add(paper.Slack)
}

// Setup implements Reconciler.
func (r *agreements) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("storageagreement").For(&v1alpha1.StorageAgreement{}).
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			r.on(func(p paper.Paper) {
				for _, id := range r.concerned(p) {
					q.Add(request(id))
				}
			})
			r.Mirror.OnNews(func(n mirror.News) {
				for _, id := range n.Stores {
					q.Add(request(id))
				}
				if n.Site == r.Site { // it may have fewer gateways, which say that nothing is left
					for _, p := range r.Mirror.Papers(string(paper.FormAnswer) + "/") {
						if a := p.Answer; a != nil && a.Host == r.Organization && a.Deleting != nil && a.Deleted == nil {
							q.Add(request(a.ID))
						}
					}
				}
			})
			return nil
		})).
		Complete(r)
}

// concerned are the agreements that a paper is about. An offer that changed may accept more.
func (r *agreements) concerned(p paper.Paper) (ids []string) {
	if p.Offer == nil {
		_, rest, _ := strings.Cut(p.Name(), "/")
		id, _, _ := strings.Cut(rest, "/")
		return []string{id}
	}
	if p.Offer.Organization != r.Organization {
		return nil
	}
	for _, q := range r.Mirror.Papers(string(paper.FormRequest) + "/") {
		if q.Request == nil || q.Request.Offer != p.Offer.Name || q.Request.Host != r.Organization {
			continue
		}
		if _, answered := r.Mirror.Paper(paper.AnswerName(q.Request.ID)); !answered {
			ids = append(ids, q.Request.ID)
		}
	}
	return ids
}

func agreementStatus(obj client.Object) (any, []metav1.Condition) {
	s := obj.(*v1alpha1.StorageAgreement).Status
	return s, s.Conditions
}

// Reconcile implements reconcile.Reconciler.
func (r *agreements) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := &v1alpha1.StorageAgreement{}
	if err := client.IgnoreNotFound(r.Get(ctx, req.NamespacedName, obj)); err != nil {
		return ctrl.Result{}, err
	}
	if out := settle(r.Await()); out.Verdict != nil || out.Quiet || out.Err != nil {
		return out.Result, out.Err // what is shown is what was last heard: Sites tell that the registry is away
	}
	a, err := r.desk.Agreement(ctx, req.Name)
	switch {
	case errors.Is(err, federation.ErrNotFound) && obj.ResourceVersion == "":
		return ctrl.Result{}, nil
	case errors.Is(err, federation.ErrNotFound):
		return r.lost(ctx, obj, "request")
	case err != nil:
		return ctrl.Result{}, err
	case a.Request.Guest != r.Organization && a.Request.Host != r.Organization:
		return r.gone(ctx, obj)
	}
	if obj.ResourceVersion == "" {
		want := &v1alpha1.StorageAgreement{ObjectMeta: metav1.ObjectMeta{Name: req.Name, Annotations: r.marks()}}
		out := settle(r.Ensure(ctx, want))
		return out.Result, out.Err // its event has it looked at again
	}
	if a.Answer == nil && slices.ContainsFunc(obj.Status.Papers, func(p v1alpha1.SignedPaper) bool {
		return p.Name == paper.AnswerName(req.Name)
	}) {
		return r.lost(ctx, obj, "answer")
	}
	if now := r.Now(); a.Over() && !now.Before(agreed{a}.forgotten(now)) {
		out := settle(r.forgets(ctx, req.Name))
		return out.Result, out.Err // what is shown goes with the papers
	}
	before := obj.DeepCopy()
	out := settle(r.says(ctx, obj, agreed{a}))
	if out.Quiet || out.Err != nil {
		return out.Result, out.Err
	}
	decided := obj.Spec.Decision != "" && a.Answer == nil // by a person: it is signed, and not heard of yet
	if (out.Verdict == nil || out.Stalled) && !decided {  // what is refused is a person's mistake, and stops nothing else
		moved := r.moves(ctx, obj, agreed{a})
		if moved.Quiet || moved.Err != nil {
			return moved.Result, moved.Err
		}
		if out.Verdict == nil {
			out = moved
		}
	}
	counted, wait := settle(nil), time.Duration(0)
	if err := r.counts(ctx, agreed{a}, &wait); err != nil {
		if counted = settle(err); counted.Quiet || counted.Err != nil {
			return counted.Result, counted.Err
		}
	}
	if out.Verdict == nil && counted.Verdict != nil {
		out = counted
	}
	if was := obj.Status.Phase; was != v1alpha1.AgreementPhase(a.Phase) {
		defer r.Mirror.Stir(a.Request.ID, r.Now())
	}
	r.show(obj, agreed{a}, out)
	earlier, err := r.keep(ctx, obj, agreed{a})
	if err != nil {
		if again := settle(err); again.Err != nil || again.Quiet {
			return again.Result, again.Err
		}
	}
	if earlier != nil && out.Verdict == nil {
		show(&obj.Status.Conditions, obj.Generation, r.Now(), settle(earlier), plan.State{})
	}
	now := r.Now()
	next := agreed{a}.next(now)
	if wait > 0 {
		next = append(next, now.Add(wait))
	}
	out.Result = wake(out.Result, now, next...)
	return r.Report(ctx, out, before, obj, agreementStatus)
}

// lost shows that the registry has a side of an agreement no more. One that is over
// goes, when both may forget it: the other side has.
func (r *agreements) lost(ctx context.Context, obj *v1alpha1.StorageAgreement, what string) (ctrl.Result, error) {
	keep := paper.KeptNever
	switch phase := paper.Phase(obj.Status.Phase); phase {
	case paper.Ended, paper.Declined, paper.Expired:
		if phase == paper.Ended {
			keep = paper.KeptEnded
		}
		var last time.Time
		for _, s := range obj.Status.Said {
			if s.At.After(last) {
				last = s.At.Time
			}
		}
		if left := last.Add(keep).Sub(r.Now()); left > 0 { // what is shown stays
			return ctrl.Result{RequeueAfter: left}, nil
		}
		if out := settle(r.forgets(ctx, obj.Name)); out.Verdict != nil || out.Quiet || out.Err != nil {
			return out.Result, out.Err
		}
		return r.gone(ctx, obj)
	case "":
		return r.gone(ctx, obj)
	}
	if what == "answer" {
		return r.missing(ctx, obj, what, nil)
	}
	err := r.putsBack(ctx, obj)
	switch out := settle(err); {
	case err == nil:
		return ctrl.Result{}, nil // its event has it looked at again
	case out.Err != nil, out.Quiet && !errors.Is(err, federation.ErrConflict): // of a conflict there is one that is not shown
		return out.Result, out.Err
	}
	return r.missing(ctx, obj, what, err)
}

// putsBack has the registry have the guest's request again that it lost (lending-6).
func (r *agreements) putsBack(ctx context.Context, obj *v1alpha1.StorageAgreement) error {
	p := r.kept(obj, paper.RequestName(obj.Name))
	if p == nil || p.Request == nil {
		return outcome.Stopped(v1alpha1.ReasonNotFound, "status.papers has no request that counts")
	}
	return r.desk.PutBack(ctx, *p.Request)
}

// missing shows what the registry has not any more, and why it is not put back.
func (r *agreements) missing(ctx context.Context, obj *v1alpha1.StorageAgreement, what string, why error) (ctrl.Result, error) {
	before := obj.DeepCopy()
	text := "the registry has no " + what + " of that ID any more, or does not show it: what both sides signed is in status.papers; "
	if why != nil {
		text += "it is not put back (" + why.Error() + "); "
	} else {
		text += "the host's acceptance is not put back, since a gatekeeper takes it only when it is given; "
	}
	out := settle(outcome.Stopped(v1alpha1.ReasonNotFound, text+"see why the registry lost it, and keep a copy of this object, which "+
		"`weir exchange verify` checks, before you delete it; to go on, both agree anew: the guest by another StorageRequest, to which it "+
		"copies what it has there"))
	if again := settle(why).Result.RequeueAfter; again > 0 { // a gatekeeper judges by the time
		out.Result.RequeueAfter = again
	}
	show(&obj.Status.Conditions, obj.Generation, r.Now(), out, plan.State{})
	return r.Report(ctx, out, before, obj, agreementStatus)
}

// forgets deletes what this organization said and counted of an agreement that is over: its side of
// the agreement last.
func (r *agreements) forgets(ctx context.Context, id string) error {
	own := append(r.Mirror.Papers(string(paper.FormUsage)+"/"+id+"/"), r.Mirror.Papers(paper.RoomName(id, ""))...)
	for _, name := range []string{paper.AnswerName(id), paper.RequestName(id)} {
		if p, ok := r.Mirror.Paper(name); ok {
			own = append(own, p)
		}
	}
	for _, p := range own {
		if p.Writer() != r.Organization {
			continue
		}
		if err := r.Book.DeletePaper(ctx, p.Name(), p.Revision); err != nil && !errors.Is(err, federation.ErrNotFound) {
			return err
		}
	}
	return nil
}

// says has the registry hear what people decided. What is refused keeps nothing else from being
// said; the first refusal is returned.
func (r *agreements) says(ctx context.Context, obj *v1alpha1.StorageAgreement, a agreed) (refused error) {
	if a.Over() {
		return nil
	}
	stops := func(err error) bool {
		if err != nil && settle(err).Stalled {
			refused = cmp.Or(refused, err)
			return false
		}
		return err != nil
	}
	s, id := obj.Spec, a.Request.ID
	guest := a.Request.Guest == r.Organization
	stops(r.misplaced(obj, a))
	for _, d := range []struct {
		field string
		said  *v1alpha1.Statement
		guest bool
		done  bool
		say   func(context.Context, string, string) error
	}{
		{"unpaid", s.Unpaid, false, a.Answer != nil && a.Answer.Unpaid != nil, r.desk.Unpaid},
		{"hostGone", s.HostGone, true, a.Request.HostGone != nil, r.desk.HostGone},
		{"drained", s.Drained, true, a.Request.Drained != nil, r.desk.Drained},
		{"delete", s.Delete, false, a.Answer != nil && a.Answer.Deleting != nil, func(ctx context.Context, id, _ string) error {
			return r.desk.Delete(ctx, id)
		}},
		{"notice", s.Notice, guest, a.Noticed(guest), r.desk.End},
	} {
		switch {
		case d.said == nil || d.done:
		case d.guest != guest:
			stops(outcome.Stopped(v1alpha1.ReasonRefused, fmt.Sprintf("spec.%s: that is for %q to say", d.field, with(a.Request.Terms,
				r.Organization))))
		default:
			if err := d.say(ctx, id, d.said.Why); err != nil {
				if err = fmt.Errorf("spec.%s: %w", d.field, err); stops(err) {
					return err
				}
			}
		}
	}
	if s.Decision == "" || a.Answer != nil {
		return refused
	}
	if guest {
		return cmp.Or(refused, outcome.Stopped(v1alpha1.ReasonRefused, fmt.Sprintf("spec.decision: %q accepts or declines",
			a.Request.Host)))
	}
	err := error(nil)
	if s.Decision == v1alpha1.DecisionAccept {
		err = r.desk.Accept(ctx, id, false)
	} else {
		err = r.desk.Decline(ctx, id, s.Why)
	}
	if err != nil {
		return fmt.Errorf("spec.decision: %w", err)
	}
	return refused
}

// misplaced refuses fields of the spec that are the other side's, or that there are not for a kind.
func (r *agreements) misplaced(obj *v1alpha1.StorageAgreement, a agreed) error {
	guest := a.Request.Guest == r.Organization
	for _, f := range []struct {
		field, remedy string
		is, guest     bool
	}{
		{"endpoint", "the room is at the gateways of site " + a.Request.Site, obj.Spec.Endpoint != "", false},
		{"rooms", "the room is for all volumes together, and no gateway needs a part of it", len(obj.Spec.Rooms) > 0, true},
	} {
		switch {
		case !f.is:
		case f.guest != guest:
			return outcome.Stopped(v1alpha1.ReasonRefused, fmt.Sprintf("spec.%s: that is for %q to say: take it out", f.field,
				with(a.Request.Terms, r.Organization)))
		case a.Request.Kind != paper.KindStore:
			return outcome.Stopped(v1alpha1.ReasonRefused, fmt.Sprintf("spec.%s: kind is %s: take it out, %s", f.field, a.Request.Kind,
				f.remedy))
		}
	}
	return nil
}

// moves says what follows by itself (lending-2).
func (r *agreements) moves(ctx context.Context, obj *v1alpha1.StorageAgreement, a agreed) outcome.Outcome {
	id, err := a.Request.ID, error(nil)
	if a.Request.Guest == r.Organization {
		if x := a.Answer; x != nil && x.Deleted != nil && a.Request.Confirmed == nil {
			err = r.desk.Confirm(ctx, id)
		} else if (a.Phase == paper.Ending || a.Phase == paper.Breached && a.Breach == paper.Guest) && r.empty(a) {
			err = r.desk.Drained(ctx, id, "nothing is there any more")
		} else {
			err = r.gives(ctx, obj, a)
		}
		return settle(err)
	}
	if a.Request.Site != r.Site {
		return outcome.Outcome{}
	}
	switch {
	case a.Phase == paper.Requested && a.Answer == nil:
		if err = r.desk.Accept(ctx, id, true); errors.Is(err, exchange.ErrRefused) || errors.Is(err, paper.ErrInvalid) {
			err = nil // it waits for a person
		}
	case a.Phase == paper.Agreed && a.Answer.Ready == nil, r.moved(obj, a):
		err = r.ready(ctx, obj, a)
	case a.Phase == paper.Drained && a.Answer.Deleting == nil:
		// A volume may have come by it at the same time. Then it is for a person to say.
		if _, volumes := r.Mirror.Promised(view.StoreLoad(id)); volumes == 0 {
			err = r.desk.Delete(ctx, id)
		}
	case a.Answer != nil && a.Answer.Deleting != nil && a.Answer.Deleted == nil:
		_, err = r.desk.Finish(ctx, id)
	}
	return settle(err)
}

// moved reports whether a person says that a store is elsewhere than was said.
func (r *agreements) moved(obj *v1alpha1.StorageAgreement, a agreed) bool {
	return a.Request.Kind == paper.KindStore && obj.Spec.Endpoint != "" && a.Reads() && a.Answer.Ready.Endpoint != obj.Spec.Endpoint
}

// ready says where the room is.
func (r *agreements) ready(ctx context.Context, obj *v1alpha1.StorageAgreement, a agreed) error {
	if a.Request.Kind != paper.KindStore { // it is at the site's gateways
		return r.desk.Ready(ctx, a.Request.ID, paper.Place{})
	}
	at := paper.Place{Endpoint: cmp.Or(obj.Spec.Endpoint, r.Endpoint)}
	if at.Endpoint == "" {
		return outcome.Stopped(v1alpha1.ReasonRefused, "this site has no store for others: run one (lending.enabled in the chart, or "+
			"`weir store`), or say in spec.endpoint where it is")
	}
	return r.desk.Ready(ctx, a.Request.ID, at)
}
