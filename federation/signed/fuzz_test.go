// SPDX-License-Identifier: Apache-2.0

package signed

import (
	"bytes"
	"testing"
)

// FuzzValue looks at arbitrary values of the registry, as readers do before they trust anybody.
func FuzzValue(f *testing.F) {
	for _, v := range []string{`{"version":1,"record":{"uuid":"u"}}`, `{"version":1,"elsewhere":{}}`,
		`{"version":1,"record":{},"deeds":[{"from":"a","to":"b","signature":"s"}],"signature":"a.b.c"}`, `{"version":1,"record":null}`} {
		f.Add("volume/u", []byte(v))
		f.Add("control/u", []byte(v))
		f.Add("site/s", []byte(v))
	}
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		if is := Hidden(value); is != nil && !bytes.Equal(Stub(*is), value) {
			t.Fatalf("%s", value)
		}
		Has(value)
		Settled(value)
		About(key, value)
		GatewaysOf(value)
		NameOf(value)
		Needs(key)
		KindOf(key)
		if _, err := open(value); SameRecord(value, value) != (err == nil) {
			t.Fatalf("%s is not itself", value)
		}
		var s *Seal // of a process without a certificate
		s.Concerns("u", func(string) []byte { return value })
	})
}
