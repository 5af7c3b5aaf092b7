// SPDX-License-Identifier: Apache-2.0

// Package charts has Weir's Helm chart, in the folder weir, and its tests. There is no Go code in
// it besides.
//
// The chart installs one site: see weir/values.yaml, and docs/kubernetes. What is particular about
// it:
//
//   - Names are fixed (weir-gateway and so on): a cluster is one site, and what a pod's environment
//     says of Services is used by name.
//   - Nothing on the data path depends on DNS or on the Kubernetes API: addresses of Services come
//     from the environment that the kubelet gives to pods that are made after them.
//   - weir/templates/crds is written by hack/crds from config/crd.
//   - Helm cannot install objects of kinds that the same release brings, nor make keys that survive
//     it: `weir setup`, a Job, does. Nothing random is rendered.
//   - No image has a registry: its host is for who installs the chart to say.
//   - What data depends on has the annotation helm.sh/resource-policy: keep. The tests list it.
//
// The files in weir/ci are examples of values that the tests install, as far as that goes without a
// cluster. Tests need helm, as `hack/tools/build helm` builds it.
package charts
