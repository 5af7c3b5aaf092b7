// SPDX-License-Identifier: Apache-2.0

package refuse

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/test/e2e/bed"
)

// behind: the organization that runs the member of the registry at c writes records past the
// gatekeepers: they name it the volume's owner, its home, who has its key, and another site's
// organization. Who writes to the volume notices nothing. Gateways tell it, and put back what
// counts.
func (s *scene) behind(t *testing.T) {
	s.whole()
	etcd := s.Bed.Etcd.Member("c")
	get := func(key string) string {
		t.Helper()
		out, err := etcd.Ctl(s.Ctx, "get", "--print-value-only", key)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	prefix := "/weir/" + bed.Federation + "/"
	uuid := get(prefix + "name/v")
	was := map[string]string{}
	for key, change := range map[string]func(map[string]any){
		"volume/" + uuid: func(r map[string]any) { r["owner"] = "org-c" },
		"keyring/" + uuid: func(r map[string]any) {
			r["wrapped"] = map[string][]byte{"c": []byte("known to c")}
			r["generation"] = 99
		},
		"control/" + uuid: func(r map[string]any) { r["epoch"] = 99 },
		"site/a":          func(r map[string]any) { r["organization"] = "org-c" },
	} {
		var e map[string]json.RawMessage
		was[key] = get(prefix + key)
		if err := json.Unmarshal([]byte(was[key]), &e); err != nil || e["signature"] == nil {
			t.Fatalf("%s has no signature: %s (%v)", key, was[key], err)
		}
		var r map[string]any
		if err := json.Unmarshal(e["record"], &r); err != nil {
			t.Fatal(err)
		}
		change(r)
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		e["record"] = text // its signature is of another
		forged, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := etcd.Ctl(s.Ctx, "put", prefix+key, string(forged)); err != nil {
			t.Fatal(err)
		}
	}
	s.grows(t)
	begun := time.Now()
	for key, value := range was {
		for get(prefix+key) != value {
			if time.Since(begun) > time.Minute {
				t.Fatalf("%s is not put back: %s", key, get(prefix+key))
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	t.Logf("what counts was put back within %v", time.Since(begun).Round(100*time.Millisecond))
	for _, site := range []string{"a", "b"} {
		text, err := os.ReadFile(s.Bed.Site(site).Gateway().Log())
		if err != nil {
			t.Fatal(err)
		}
		for key := range was {
			if !strings.Contains(string(text), "audit=forged record="+key) {
				t.Errorf("the gateway of %s does not tell of %s", site, key)
			}
		}
	}
	s.whole()
	s.grows(t)
}
