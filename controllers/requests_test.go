// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// The limit of client-go is off, and the manager's own configuration as it was.
func TestUnlimited(t *testing.T) {
	cfg := &rest.Config{Host: "h", QPS: 5, Burst: 10}
	if got := unlimited(cfg); got.QPS >= 0 || got.RateLimiter != nil || got.Host != "h" {
		t.Errorf("got %+v", got)
	}
	if cfg.QPS != 5 || cfg.Burst != 10 {
		t.Errorf("the manager's is now %+v", cfg)
	}
}

// A site that joins shows the volumes that are well, and tells nothing of them; what is not well when it is first looked at is told.
func TestWellFromTheStartIsNoNews(t *testing.T) {
	f := newFed(t)
	f.site("ams", "uva")
	f.site("utr", "uva")
	ams := f.cluster("ams")
	ams.create(copies(2))
	g := gv("ns", "data", func(s *v1alpha1.GeoVolumeSpec) { s.Policy = "p" })
	ams.create(g)
	settleAll(ams)
	ams.get(g)
	f.serve(g.Status.Volume, 0)
	settleAll(ams)
	if !ams.told(v1alpha1.ReasonCreating) || !ams.told(v1alpha1.ReasonReady) {
		t.Error("where it was made, no event tells that it is made and then ready")
	}

	utr := f.cluster("utr")
	settleAll(utr)
	c := contentOf(g.Status.Volume)
	utr.get(c)
	if r := ready(c.Status.Conditions); r.Status != metav1.ConditionTrue {
		t.Fatalf("the mirror's Ready is %+v", r)
	}
	if n := len(utr.events.Events); n != 0 {
		t.Errorf("%d events tell of what is well, such as %s", n, <-utr.events.Events)
	}
}
