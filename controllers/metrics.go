// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/metrics"
)

// Collector measures the volumes of a cluster, from their objects. It is a prometheus.Collector.
type Collector struct{ from client.Reader }

var _ prometheus.Collector = Collector{}

// NewCollector returns a Collector that reads from a cache.
func NewCollector(from client.Reader) Collector { return Collector{from} }

var (
	readyDesc, copiesDesc     = metrics.ContentReady.Desc(), metrics.ContentCopies.Desc()
	contentsDesc, withoutDesc = metrics.Contents.Desc(), metrics.VolumesWithout.Desc()
	labelsDesc                = metrics.SiteLabelsRefused.Desc()
)

// collectTime bounds a read, also while the cache is not filled yet.
const collectTime = 2 * time.Second

// Describe implements prometheus.Collector.
func (c Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- readyDesc
	ch <- copiesDesc
	ch <- contentsDesc
	ch <- withoutDesc
	ch <- labelsDesc
}

// Collect implements prometheus.Collector. An error is what the reader of the metrics gets.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTime)
	defer cancel()
	c.collectSites(ctx, ch)
	var all v1alpha1.GeoVolumeContentList
	if err := c.from.List(ctx, &all); err != nil {
		ch <- prometheus.NewInvalidMetric(contentsDesc, err)
		return
	}
	ch <- prometheus.MustNewConstMetric(contentsDesc, prometheus.GaugeValue, float64(len(all.Items)))
	// Which ones are measured does not change by chance (metrics-4): those that are not ready, then
	// by name.
	slices.SortFunc(all.Items, func(a, b v1alpha1.GeoVolumeContent) int {
		ready, _ := readiness(&a)
		other, _ := readiness(&b)
		return cmp.Or(cmp.Compare(ready, other), cmp.Compare(a.Name, b.Name))
	})
	measured := all.Items[:min(len(all.Items), metrics.MaxVolumes)]
	ch <- prometheus.MustNewConstMetric(withoutDesc, prometheus.GaugeValue, float64(len(all.Items)-len(measured)))
	for i := range measured {
		v := &measured[i]
		ready, reason := readiness(v)
		ch <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, ready, v.Name, reason)
		healthy, wanted, ok := strings.Cut(v.Status.Copies, "/")
		for what, text := range map[string]string{"healthy": healthy, "wanted": wanted} {
			if n, err := strconv.Atoi(text); ok && err == nil {
				ch <- prometheus.MustNewConstMetric(copiesDesc, prometheus.GaugeValue, float64(n), v.Name, what)
			}
		}
	}
}

// collectSites measures the sites of the federation.
func (c Collector) collectSites(ctx context.Context, ch chan<- prometheus.Metric) {
	var all v1alpha1.SiteList
	if err := c.from.List(ctx, &all); err != nil {
		ch <- prometheus.NewInvalidMetric(labelsDesc, err)
		return
	}
	for _, s := range all.Items {
		if refused := s.Annotations[refusedAnnotation]; refused != "" {
			n := strings.Count(refused, ",") + 1
			ch <- prometheus.MustNewConstMetric(labelsDesc, prometheus.GaugeValue, float64(n), s.Name)
		}
	}
}

// readiness is 1 for a volume that is ready, else 0, and why.
func readiness(v *v1alpha1.GeoVolumeContent) (ready float64, reason string) {
	r := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case r == nil:
		return 0, v1alpha1.ReasonCreating
	case r.Status == metav1.ConditionTrue:
		return 1, r.Reason
	}
	return 0, r.Reason
}
