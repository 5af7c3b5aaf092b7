// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"math/rand"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/metrics"
)

// shuffled lists contents in another order each time, as a cache does.
type shuffled struct {
	client.Reader
	all []v1alpha1.GeoVolumeContent
}

func (s *shuffled) List(_ context.Context, to client.ObjectList, _ ...client.ListOption) error {
	rand.Shuffle(len(s.all), func(i, j int) { s.all[i], s.all[j] = s.all[j], s.all[i] })
	if contents, ok := to.(*v1alpha1.GeoVolumeContentList); ok { // there are no sites
		contents.Items = append([]v1alpha1.GeoVolumeContent{}, s.all...)
	}
	return nil
}

// TestTheSameContentsAreMeasured: with too many volumes, those that are not ready are measured at
// each reading, and the others by name.
func TestTheSameContentsAreMeasured(t *testing.T) {
	const more = 3
	s := new(shuffled)
	for i := range metrics.MaxVolumes + more {
		v := v1alpha1.GeoVolumeContent{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("v%05d", i)}}
		if i < metrics.MaxVolumes+more-2 { // the last two by name are not ready
			v.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready"}}
		}
		s.all = append(s.all, v)
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(NewCollector(s))
	for range 2 {
		all, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		left := -1.0
		for _, f := range all {
			switch f.GetName() {
			case metrics.ContentReady.Name:
				for _, m := range f.GetMetric() {
					for _, l := range m.GetLabel() {
						if l.GetName() == "volume" {
							seen[l.GetValue()] = true
						}
					}
				}
			case metrics.VolumesWithout.Name:
				left = f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		if len(seen) != metrics.MaxVolumes || left != more {
			t.Errorf("%d volumes are measured, and %v are not", len(seen), left)
		}
		for i := range s.all {
			name := fmt.Sprintf("v%05d", i)
			if want := i < metrics.MaxVolumes-2 || i >= metrics.MaxVolumes+more-2; seen[name] != want {
				t.Errorf("%s is measured: %v, want %v", name, seen[name], want)
			}
		}
	}
}
