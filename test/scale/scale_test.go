// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
)

var volumes = flag.Int("volumes", 0, "how many GeoVolumeContents there are; 0: 2000, or 10000 in the long form, with WEIR_SOAK=1")

// count is what -volumes says.
func count() int {
	switch {
	case *volumes > 0:
		return *volumes
	case os.Getenv("WEIR_SOAK") != "":
		return 10_000
	}
	return 2_000
}

// TestSteadyState is the package's comment.
func TestSteadyState(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of volumes take more than a minute")
	}
	r := newRig(t)
	w := &world{rig: r, gateways: newGateways(r), parts: partsOf(count())}
	w.grow()
	w.begin()
	w.steady()
	w.change()
}

func since(t time.Time) time.Duration { return time.Since(t).Round(100 * time.Millisecond) }

// world is what the steps of the test share.
type world struct {
	*rig
	*gateways
	parts

	op   *operator
	gate *gate
	// What there was when the second operator began, and what the test has written since.
	objects  map[string]string
	requests map[string]int
	leads    int
	revision federation.Revision
	own      int64
}

// grow has an operator make all there is, and ends it.
func (w *world) grow() {
	t := w.rig.t
	ctx, stop := context.WithCancel(t.Context())
	var play sync.WaitGroup
	defer play.Wait()
	defer stop()
	w.ok(w.follow(ctx, &play))
	play.Go(func() { w.bind(ctx) })

	w.ok(w.papers())
	began := time.Now()
	op := w.start(w.kubeconfig("direct", w.host, w.cfg.CAData, w.cfg.CertData, w.cfg.KeyData))
	w.ok(w.rig.objects(w.parts))
	w.ok(w.fill(w.parts))
	w.ask()
	filled := since(began)
	// What is shown of sites is looked at every 30 s, so it comes last.
	w.until("wait until the operator has made all", func() (bool, string) {
		if p, ok := op.pulse(); !ok || p.busy > 0 {
			return false, fmt.Sprintf("the operator serves its metrics: %v; it has %d objects to look at, and has looked at %v", ok, p.busy,
				p.reconciles)
		}
		return w.settled(w.parts, w.loads)
	})
	done := since(began)
	p := op.idle(pulse{}, nil)
	now, most := op.memory()
	t.Logf("an operator shows all %d GeoVolumeContents and %d sites %v after its start, "+
		"of which the test took %v to write down what there is to show: requests %v, %v reconciles, %d of them failed; "+
		"memory: %d MiB, at most %d MiB",
		w.contents(), sites, done, filled, w.written(), p.reconciles, p.failed, now, most)
	op.end()
}

// begin starts another, which has nothing to do.
func (w *world) begin() {
	w.gate = newGate(w.rig)
	w.remember()
	began := time.Now()
	w.op = w.start(w.kubeconfig("gate", w.gate.server.URL, w.gate.pem, nil, nil))
	p := w.op.idle(pulse{}, w.everything())
	took := since(began)
	now, most := w.op.memory()
	reads := w.nothingWritten("another operator has started")
	w.rig.t.Logf("another operator has looked at everything after %v: %d requests to read, none to write, %v reconciles; "+
		"memory: %d MiB, at most %d MiB", took, reads, p.reconciles, now, most)
}

// everything is how many objects there are, by the controllers that look at them.
func (w *world) everything() map[string]int {
	_, _, all := papersShown()
	all["geovolumecontent"], all["geovolume"], all["site"] = w.contents(), w.made+w.imports, sites
	return all
}

// steady has happen what happens when nothing happens.
func (w *world) steady() {
	t, began := w.rig.t, time.Now()
	before, ok := w.op.pulse()
	if !ok {
		t.Fatal("the operator does not serve its metrics")
	}
	reports := 0
	for round := range 2 {
		n, err := w.report(1 + round)
		w.ok(err)
		reports += n
	}
	reported := since(began)
	// The operator looks at every site of itself twice a minute.
	p := w.op.idle(before, map[string]int{"site": sites})
	looks := p.reconciles["geovolumecontent"] - before.reconciles["geovolumecontent"]

	lists := w.gate.expire()
	if len(lists) < 11 {
		t.Errorf("the operator watches %v, want eleven kinds", slices.Sorted(maps.Keys(lists)))
	}
	w.until("wait until the operator lists again", func() (bool, string) { w.op.alive(); return w.gate.listed(lists) })
	p = w.op.idle(p, w.everything())
	reads := w.nothingWritten("homes have reported, and everything was listed again")
	now, most := w.op.memory()
	t.Logf("in %v of steady state, with %d reports of homes (in %v, for which %d volumes were looked at) "+
		"and a list of everything: %d requests to read, none to write, %v reconciles, %d of them failed; memory: %d MiB, at most %d MiB",
		since(began), reports, reported, looks, reads, p.reconciles, p.failed, now, most)

	// What the registry tells is told in order: when this is seen, all of the above was.
	w.ok(w.register(sites-1, "7441"))
	far := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: siteName(sites - 1)}}
	w.until("wait for a site's new address", func() (bool, string) {
		w.ok(w.api.Get(t.Context(), client.ObjectKeyFromObject(far), far))
		return len(far.Status.Gateways) == 1 &&
			strings.HasSuffix(far.Status.Gateways[0].Address, ":7441"), fmt.Sprintf("it is %+v", far.Status.Gateways)
	})
	w.op.idle(pulse{}, nil)
	w.onlyWritten("a site's gateway has moved", 0, 0, "Site /"+far.Name)
}

// change has the owner elsewhere grant a volume to more people, and a person here edit another.
func (w *world) change() {
	ctx, stop := context.WithCancel(w.rig.t.Context())
	var play sync.WaitGroup
	defer play.Wait()
	defer stop()
	w.ok(w.follow(ctx, &play))

	theirs, rev, err := w.reg.FindVolume(ctx, "team.copy-00007")
	w.ok(err)
	w.remember()
	theirs.Grants = append(theirs.Grants, federation.Grant{Site: here, Namespace: "more", Access: federation.ReadOnly})
	w.writes.Add(1)
	_, err = w.reg.UpdateVolume(ctx, rev, theirs)
	w.ok(err)
	c := &v1alpha1.GeoVolumeContent{ObjectMeta: metav1.ObjectMeta{Name: theirs.UUID}}
	w.until("wait for a grant", func() (bool, string) {
		w.ok(w.api.Get(ctx, client.ObjectKeyFromObject(c), c))
		return len(c.Spec.Grants) == 2 && c.Status.ObservedGeneration == c.Generation, fmt.Sprintf("grants are %v", c.Spec.Grants)
	})
	w.op.idle(pulse{}, nil)
	w.onlyWritten("the owner of a volume has granted it", 0, 0, "GeoVolumeContent /"+theirs.UUID)

	ours := classContent(1) // without a VolumePolicy, whose status would count it
	w.ok(w.api.Get(ctx, client.ObjectKeyFromObject(ours), ours))
	before := ours.DeepCopy()
	lag := v1alpha1.MaxLag{Time: &metav1.Duration{Duration: 2 * time.Minute}}
	ours.Spec.Overrides = &v1alpha1.VolumePolicySpec{Durability: v1alpha1.Durability{MaxLag: lag}}
	w.ok(w.api.Patch(ctx, ours, client.MergeFrom(before)))
	w.until("wait for an edit to be in force", func() (bool, string) {
		w.ok(w.api.Get(ctx, client.ObjectKeyFromObject(ours), ours))
		at := ours.Status
		return at.VolumeGeneration == 2 && at.ObservedGeneration == ours.Generation &&
			slices.ContainsFunc(at.Conditions, func(c metav1.Condition) bool {
				return c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonReady
			}), fmt.Sprintf("generation %d of the volume, %+v", at.VolumeGeneration, at.Conditions)
	})
	w.op.idle(pulse{}, nil)
	w.onlyWritten("a volume was edited here", 1, 1, "GeoVolumeContent /"+ours.Name)
	w.say()
}

// remember takes note of what is there.
func (w *world) remember() {
	w.rig.t.Helper()
	w.gate.forget()
	_, w.leads = w.gate.peek()
	w.objects, w.requests = w.versions(), w.written()
	head, err := w.reg.Head(w.rig.t.Context())
	w.ok(err)
	w.revision, w.own = head.Revision, w.writes.Load()
}

// nothingWritten fails the test if the operator has written anything since remember, and tells how
// often it has read.
func (w *world) nothingWritten(when string) (reads int) {
	w.rig.t.Helper()
	t := w.rig.t
	if writes, n := w.agree(0); n > 0 {
		what := slices.Sorted(maps.Keys(writes))
		t.Errorf("%s: the operator wrote %d times to %d paths, such as %v", when, n, len(what), what[:min(10, len(what))])
	}
	head, err := w.reg.Head(t.Context())
	w.ok(err)
	if n := int64(head.Revision-w.revision) - (w.writes.Load() - w.own); n != 0 {
		t.Errorf("%s: the operator wrote %d times to the registry", when, n)
	}
	if c := changed(w.objects, w.versions()); len(c) > 0 {
		t.Errorf("%s: %d objects have changed, such as %v", when, len(c), c[:min(10, len(c))])
	}
	if t.Failed() {
		t.FailNow()
	}
	return w.gate.read()
}

// agree waits until the API server has counted the writes that the gate has seen, and own ones of
// the test, since remember: it counts a request when it is answered. It returns those that the gate
// has seen, and how many the API server has counted.
func (w *world) agree(own int) (writes map[string]int, counted int) {
	w.rig.t.Helper()
	w.until("count the same writes at the gate and at the API server", func() (bool, string) {
		var leads, seen int
		writes, leads = w.gate.peek()
		counted = w.leads - leads - own
		for what, n := range w.written() {
			counted += n - w.requests[what]
		}
		for _, n := range writes {
			seen += n
		}
		return counted == seen, fmt.Sprintf("the API server counts %d, the gate %d: %v", counted, seen, writes)
	})
	return writes, counted
}

// onlyWritten fails the test unless the operator has written to one object, and so often to the
// registry, since remember; and remembers. The test itself has sent own requests to write to the
// API server meanwhile.
func (w *world) onlyWritten(when string, own int, registry int64, object string) {
	w.rig.t.Helper()
	t := w.rig.t
	writes, _ := w.agree(own)
	_, name, _ := strings.Cut(object, "/")
	for what := range writes {
		if parts := strings.Split(what, "/"); !slices.Contains(parts, name) && !slices.Contains(parts, "events") {
			t.Errorf("%s: the operator also sent %s", when, what)
		}
	}
	if len(writes) == 0 {
		t.Errorf("%s: the gate has seen nothing of it", when)
	}
	head, err := w.reg.Head(t.Context())
	w.ok(err)
	if n := int64(head.Revision-w.revision) - (w.writes.Load() - w.own); n != registry {
		t.Errorf("%s: the operator wrote %d times to the registry, want %d", when, n, registry)
	}
	if c := changed(w.objects, w.versions()); !slices.Equal(c, []string{object}) {
		t.Errorf("%s: %v have changed, want %s", when, c, object)
	}
	t.Logf("%s: the operator sent %v", when, writes)
	w.remember()
}
