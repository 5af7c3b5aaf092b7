// SPDX-License-Identifier: Apache-2.0

package federation

import "github.com/weir-storage/weir/federation/quantity"

// Amounts and time spans in records.
type (
	Bytes    = quantity.Bytes
	Duration = quantity.Duration
)
