// SPDX-License-Identifier: Apache-2.0

package metrics

// The operator, which also has controller_runtime_* and workqueue_* of controller-runtime.
var (
	ContentReady = define(Definition{Name: "weir_content_ready", Parts: []Part{Operator}, Kind: Gauge, Labels: []string{"volume", "reason"},
		Help: "For each GeoVolumeContent of this cluster: 1 if it is ready, 0 if not. Reason is its Ready condition's."})
	ContentCopies = define(Definition{Name: "weir_content_copies", Parts: []Part{Operator}, Kind: Gauge, Labels: []string{"volume", "what"},
		Help: "How many copies a volume of this cluster has. What is wanted, or healthy."})
	Contents = define(Definition{Name: "weir_contents", Parts: []Part{Operator}, Kind: Gauge,
		Help: "GeoVolumeContents of this cluster."})
	SiteLabelsRefused = define(Definition{Name: "weir_site_labels_refused", Parts: []Part{Operator}, Kind: Gauge, Labels: []string{"site"},
		Help: "Labels that another site says of itself, and that do not count: the federation's charter says something else. " +
			"Only sites with such labels are shown."})
)

// CSICallSeconds is of the CSI driver.
var CSICallSeconds = define(Definition{Name: "weir_csi_call_duration_seconds", Parts: []Part{CSI}, Kind: Histogram,
	Labels: []string{"method", "code"}, Buckets: fine,
	Help: "How long calls of kubelets and sidecars took. Code is gRPC's name of the result."})
