// SPDX-License-Identifier: Apache-2.0

// Package metrics names what Weir's processes measure. Each metric is defined here, once: its name,
// unit, labels and meaning. docs/reference/metrics.md is generated from the definitions.
//
// # Rules
//
//   - metrics-1: names and labels are an interface. One that was released is not renamed, and does
//     not change its unit or meaning. What is to go is first said so in its text, for a release.
//   - metrics-2: names end in their unit, in seconds and bytes, or in _total for counters, as
//     Prometheus asks (https://prometheus.io/docs/practices/naming).
//   - metrics-3: no label has values that users make at will, but volume, whose number is bounded
//     (MaxVolumes). There is no label for a client, a path or a user.
//   - metrics-4: which volumes are measured, of too many, does not change by chance from one
//     reading to the next: else no alert that waits would fire.
package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// MaxVolumes is how many volumes one process has metrics of. More of them are counted together as
// OtherVolumes, where that makes sense, and are left out elsewhere.
const MaxVolumes = 2000

// OtherVolumes is the label of volumes that have no metrics of their own.
const OtherVolumes = "_other"

// Kind is how a metric is to be read.
type Kind string

// The kinds of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Part is a process that has metrics.
type Part string

// The parts.
const (
	Gateway    Part = "gateway"
	Operator   Part = "operator"
	CSI        Part = "CSI driver"
	Gatekeeper Part = "registry's gatekeeper"
	LentStore  Part = "lent store"
)

// Definition is one metric.
type Definition struct {
	Name    string
	Parts   []Part
	Kind    Kind
	Labels  []string
	Help    string    // a sentence or more, for people
	Buckets []float64 // of a histogram: upper bounds, ascending
}

var catalog []*Definition

// define adds a metric to the catalog.
func define(d Definition) *Definition {
	catalog = append(catalog, &d)
	return &d
}

// Catalog returns all metrics, by name.
func Catalog() []*Definition {
	out := slices.Clone(catalog)
	slices.SortFunc(out, func(a, b *Definition) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}

// Desc is for metrics that are made when they are asked for.
func (d *Definition) Desc() *prometheus.Desc {
	return prometheus.NewDesc(d.Name, d.Help, d.Labels, nil)
}

// NewCounter makes a counter, of which Kind must be.
func (d *Definition) NewCounter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.Labels)
}

// NewHistogram makes a histogram, of which Kind must be.
func (d *Definition) NewHistogram() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: d.Buckets}, d.Labels)
}

// Buckets in seconds. What is fast takes some tens of microseconds, and what waits for another site
// takes up to minutes.
var (
	fine   = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	coarse = []float64{.0005, .001, .0025, .01, .025, .05, .1, .5, 1, 5, 30} // for each volume
)
