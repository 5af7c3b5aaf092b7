// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
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

var readyDesc, copiesDesc, contentsDesc = metrics.ContentReady.Desc(), metrics.ContentCopies.Desc(), metrics.Contents.Desc()

// collectTime bounds a read, also while the cache is not filled yet.
const collectTime = 2 * time.Second

// Describe implements prometheus.Collector.
func (c Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- readyDesc
	ch <- copiesDesc
	ch <- contentsDesc
}

// Collect implements prometheus.Collector. An error is what the reader of the metrics gets.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTime)
	defer cancel()
	var all v1alpha1.GeoVolumeContentList
	if err := c.from.List(ctx, &all); err != nil {
		ch <- prometheus.NewInvalidMetric(contentsDesc, err)
		return
	}
	ch <- prometheus.MustNewConstMetric(contentsDesc, prometheus.GaugeValue, float64(len(all.Items)))
	for i, v := range all.Items {
		if i >= metrics.MaxVolumes {
			return
		}
		ready, reason := 0.0, v1alpha1.ReasonCreating
		if r := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady); r != nil {
			if reason = r.Reason; r.Status == metav1.ConditionTrue {
				ready = 1
			}
		}
		ch <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, ready, v.Name, reason)
		healthy, wanted, ok := strings.Cut(v.Status.Copies, "/")
		for what, text := range map[string]string{"healthy": healthy, "wanted": wanted} {
			if n, err := strconv.Atoi(text); ok && err == nil {
				ch <- prometheus.MustNewConstMetric(copiesDesc, prometheus.GaugeValue, float64(n), v.Name, what)
			}
		}
	}
}
