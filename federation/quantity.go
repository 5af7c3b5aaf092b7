// SPDX-License-Identifier: Apache-2.0

package federation

import "github.com/weir-storage/weir/federation/quantity"

// Bytes is an amount of bytes, in records.
type Bytes = quantity.Bytes

// Duration is a time span, in records.
type Duration = quantity.Duration
