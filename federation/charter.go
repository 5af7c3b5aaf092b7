// SPDX-License-Identifier: Apache-2.0

package federation

import "fmt"

// Charter is the signed list of a federation's organizations and of their authorities. What it
// says, package pki reads, and nobody takes it without its signature.
type Charter struct {
	// Serial is as in what is signed, for people and for messages.
	Serial uint64 `json:"serial"`
	// Signed is a JSON Web Signature in its compact form (RFC 7515, section 3.1).
	Signed string `json:"signed"`
}

// Validate returns an error of ErrInvalid for a charter that cannot be one.
func (c Charter) Validate() error {
	if c.Serial == 0 || c.Signed == "" {
		return invalid("check", string(KindCharter), fmt.Sprint(c.Serial),
			"it has no serial or no signature: sign it with `weir federation`")
	}
	return nil
}
