// SPDX-License-Identifier: Apache-2.0

// Package meters measures a gateway for Prometheus. A Meters is told what happens, by the gateway's
// parts, which know nothing of Prometheus; and it asks the gateway for its state when it is read.
// Package metrics says what each metric means.
package meters
