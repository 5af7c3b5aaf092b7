// SPDX-License-Identifier: Apache-2.0

package capability

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

func TestCapability(t *testing.T) {
	c := Capability{Store: "ams", Agreement: "6f1c2b6e-0000-4000-8000-000000000001", Organization: "TU Delft", Gateway: "b-0",
		Until: 1790000000}
	access, err := c.Access()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Read(access); err != nil || got != c {
		t.Fatalf("%+v, %v", got, err)
	}
	if strings.ContainsAny(access, "/= ") {
		t.Errorf("%q cannot be in a scope of S3", access)
	}
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	other, _ := NewKey()
	if key.Secret(access) == other.Secret(access) || len(key.Secret(access)) < 40 {
		t.Error("secrets are not by key")
	}
	wrap := func(s string) string { return mark + base64.RawURLEncoding.EncodeToString([]byte(s)) }
	for _, bad := range []string{"", "WEIR", "AKIAIOSFODNN7EXAMPLE", "WEIR?", wrap("\x02{}"), wrap("\x01{"), wrap("\x01{\"s\": \"a\"}"),
		wrap("\x01" + `{"s":"a","a":"b","o":"c","g":"d","u":1,"x":2}`), access + "A", access[:len(access)-1],
		wrap("\x01" + strings.Repeat("x", 600))} {
		if c, err := Read(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q is read as %+v", bad, c)
		}
	}
	c.Organization = strings.Repeat("x", 600)
	if _, err := c.Access(); err == nil {
		t.Error("a key of any length is made")
	}
}

func FuzzRead(f *testing.F) {
	a, _ := Capability{Store: "ams", Agreement: "x", Organization: "o", Gateway: "g", Until: 5}.Access()
	f.Add(a)
	f.Fuzz(func(t *testing.T, access string) {
		c, err := Read(access)
		if err != nil {
			return
		}
		if again, err := c.Access(); err != nil || again != access {
			t.Errorf("%q is read, and written as %q", access, again)
		}
	})
}
