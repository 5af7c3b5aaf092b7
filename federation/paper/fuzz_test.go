// SPDX-License-Identifier: Apache-2.0

package paper

import (
	"encoding/json"
	"testing"
	"time"
)

// FuzzPaper reads arbitrary JSON as papers, and judges one after the other. Nothing of it panics.
func FuzzPaper(f *testing.F) {
	for _, s := range []string{`{"offer":{"organization":"o","name":"n"}}`, `{"request":{"id":"i","guest":"g","host":"h"}}`,
		`{"answer":{"id":"i","guest":"g","host":"h"}}`, `{"room":{"id":"i","gateway":"w"}}`, `{"usage":{"id":"i","by":"w"}}`, `{}`} {
		f.Add([]byte(s), []byte(s))
	}
	f.Fuzz(func(t *testing.T, b, c []byte) {
		var before, after Paper
		if json.Unmarshal(b, &before) != nil || json.Unmarshal(c, &after) != nil {
			return
		}
		now := time.Unix(1_800_000_000, 0)
		for _, p := range []Paper{before, after} {
			if p.Validate() != nil {
				continue
			}
			p.Name()
			p.Writer()
			p.Parties()
			_ = p.WrittenBy(Author{})
			text, err := json.Marshal(p)
			if err != nil {
				continue
			}
			var again Paper
			if err := json.Unmarshal(text, &again); err != nil || again.Validate() != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if p.Request != nil {
				p.Request.Life(nil, now)
				if after.Answer != nil && after.Validate() == nil {
					p.Request.Life(after.Answer, now)
				}
			}
		}
		if before.Validate() == nil && after.Validate() == nil {
			_ = Follows(before, after)
		}
	})
}
