// SPDX-License-Identifier: Apache-2.0

// Package stranger installs Weir as an institution does that trusts nothing which it did not bring:
// with charts/weir/ci/stranger-values.yaml, the chart of a release, and commands of the
// documentation. Nothing else is set but the addresses of the stage. The cluster holds to its
// NetworkPolicies. The federation's other site is a gateway without Kubernetes.
package stranger
