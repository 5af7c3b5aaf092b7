// SPDX-License-Identifier: Apache-2.0

package paper

// Filled is how far a lent store has a volume's log, as the home sees it.
type Filled struct {
	Agreement string `json:"agreement"`
	Site      string `json:"site"` // of its host
	// Whole: it has every segment that is sealed and committed.
	Whole      bool    `json:"whole,omitempty"`
	LagBytes   int64   `json:"lagBytes"`
	LagSeconds float64 `json:"lagSeconds"`
	// Problem says why it gets no more; empty: it does, or has everything.
	Problem string `json:"problem,omitempty"`
}
