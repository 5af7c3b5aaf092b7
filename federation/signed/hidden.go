// SPDX-License-Identifier: Apache-2.0

package signed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/pki"
)

// stub is what a gatekeeper shows in place of a record of a volume that does not concern who asks
// (gatekeeper-12).
type stub struct {
	Version   int                  `json:"version"`
	Elsewhere federation.Elsewhere `json:"elsewhere"`
}

// stubBegins is how each stub begins, and no record.
var stubBegins = []byte(`{"version":1,"elsewhere":`)

// Stub is the value that is shown in place of a record.
func Stub(is federation.Elsewhere) []byte {
	text, err := json.Marshal(stub{1, is})
	if err != nil {
		panic(fmt.Sprintf("signed: encode a stub: %v", err)) // names and a number
	}
	return text
}

// Hidden reads a stub; nil: the value is none.
func Hidden(value []byte) *federation.Elsewhere {
	var s stub
	if !bytes.HasPrefix(value, stubBegins) || json.Unmarshal(value, &s) != nil || !bytes.Equal(value, Stub(s.Elsewhere)) {
		return nil // also a record that begins so
	}
	return &s.Elsewhere
}

// Concerns reports whether a volume is known to concern this process's organization in a way that
// does not end: it owns the volume, or its own site has a copy, had one or was to have one. A grant
// may have been taken back meanwhile. lookup returns what counts of a key.
func (s *Seal) Concerns(volume string, lookup Lookup) bool {
	self := pki.Identity{}
	if s != nil {
		self = s.creds.Identity()
	}
	if v, _ := look[federation.Volume](lookup, federation.KindVolume, volume); v != nil && (v.Owner == self.Organization ||
		self.Site != "" && slices.Contains(slices.Concat(v.Sites, v.Former), self.Site)) {
		return true
	}
	c, _ := look[federation.Control](lookup, federation.KindControl, volume)
	return c != nil && self.Site != "" && slices.ContainsFunc(c.Members, func(m federation.Member) bool { return m.Site == self.Site })
}
