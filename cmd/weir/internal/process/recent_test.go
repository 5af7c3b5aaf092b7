// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"strings"
	"testing"
)

func TestRecentKeepsTheNewest(t *testing.T) {
	r := NewRecent(100)
	for i := range 1000 {
		if n, err := fmt.Fprintf(r, "line %04d\n", i); n != 10 || err != nil {
			t.Fatal(n, err)
		}
	}
	var b strings.Builder
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	if s := b.String(); len(s) != 100 || !strings.HasPrefix(s, "line 0990\n") || !strings.HasSuffix(s, "line 0999\n") {
		t.Errorf("%q", s)
	}
	if n, err := r.Write([]byte(strings.Repeat("x", 1000))); n != 1000 || err != nil {
		t.Error(n, err) // longer than all that it may keep
	}
	b.Reset()
	if err := r.Print(&b); err != nil || b.Len() > 0 {
		t.Errorf("%q, %v", b.String(), err)
	}
}
