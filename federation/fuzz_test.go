// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"errors"
	"reflect"
	"testing"
)

// FuzzDecode reads arbitrary values of the registry as each kind of record. What is read is the
// same when it was written again.
func FuzzDecode(f *testing.F) {
	for i, r := range recordsOfAll() {
		b, err := Encode(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), b)
	}
	f.Add(uint8(0), []byte(`{"version":2,"record":{}}`))
	f.Add(uint8(0), []byte(`{"version":1,"record":null}`))
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		all := recordsOfAll()
		r := all[int(kind)%len(all)]
		if err := Decode("record", "name", b, r); err != nil {
			if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrVersion) {
				t.Fatal(err)
			}
			return
		}
		text, err := Encode(r)
		if err != nil {
			return // a time that JSON does not have
		}
		again := reflect.New(reflect.TypeOf(r).Elem()).Interface()
		if err := Decode("record", "name", text, again); err != nil {
			t.Fatalf("%s is written as %s: %v", b, text, err)
		}
		if second, err := Encode(again); err != nil || string(second) != string(text) {
			t.Fatalf("%s is written as %s, then as %s (%v)", b, text, second, err)
		}
		if v, ok := r.(interface{ Validate() error }); ok {
			_ = v.Validate() // it does not panic
		}
	})
}

func recordsOfAll() []any {
	return []any{new(Volume), new(Control), new(Keyring), new(Site), new(Gateway), new(Admission), new(Purge), new(Charter), new(Observed)}
}
