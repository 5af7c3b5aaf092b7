// SPDX-License-Identifier: Apache-2.0

package federationtest

import (
	"slices"
	"testing"

	"github.com/weir-storage/weir/federation"
)

// RunArchive runs the suite of a federation.Archive. Open opens it again after what was open before
// ended without a word.
func RunArchive(t *testing.T, open func(t *testing.T) federation.Archive) {
	a := open(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	keys := func(prefix string) (out []string) {
		t.Helper()
		all, err := a.List(prefix)
		must(err)
		for _, r := range all {
			out = append(out, r.Key)
		}
		return out
	}
	must(a.Put([]federation.Record{{Key: "volume/b", Value: []byte("1"), Revision: 5}, {Key: "volume/a", Value: []byte("1"), Revision: 5},
		{Key: "site/x", Value: []byte("x"), Revision: 2}}))
	must(a.Put([]federation.Record{{Key: "volume/a", Value: []byte("late"), Revision: 4}, {Key: "volume/b", Revision: 6, Deleted: true}}))
	if got := keys("volume/"); !slices.Equal(got, []string{"volume/a", "volume/b"}) {
		t.Errorf("volumes are %v", got)
	}
	a = open(t)
	if got := keys(""); !slices.Equal(got, []string{"site/x", "volume/a", "volume/b"}) {
		t.Errorf("all records are %v", got)
	}
	if r, ok, err := a.Get("volume/a"); err != nil || !ok || string(r.Value) != "1" || r.Revision != 5 {
		t.Errorf("an older record replaced a newer one: %+v, %v, %v", r, ok, err)
	}
	if r, ok, err := a.Get("volume/b"); err != nil || !ok || !r.Deleted || r.Revision != 6 {
		t.Errorf("a deleted record is %+v, %v, %v", r, ok, err)
	}
	if _, ok, err := a.Get("volume/c"); ok || err != nil {
		t.Errorf("a record that never was: %v, %v", ok, err)
	}
	must(a.Replace([]federation.Record{{Key: "volume/a", Value: []byte("new"), Revision: 1}}))
	a = open(t)
	if r, _, err := a.Get("volume/a"); err != nil || string(r.Value) != "new" || len(keys("")) != 1 {
		t.Errorf("after everything was replaced: %+v, %v, %v", r, keys(""), err)
	}
}
