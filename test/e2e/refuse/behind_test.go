// SPDX-License-Identifier: Apache-2.0

package refuse

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/test/e2e/bed"
	"github.com/weir-storage/weir/test/e2e/stage"
)

// records are those of the registry, read and written past the gatekeepers, and judged as gateways
// judge them.
type records struct {
	*scene
	t    *testing.T
	etcd *stage.EtcdMember
	seal *signed.Seal
	was  map[string][]byte // what counts, as far as is known here
}

func (s *scene) records(t *testing.T) *records {
	t.Helper()
	r := &records{scene: s, t: t, etcd: s.Bed.Etcd.Member("c"), was: map[string][]byte{}}
	files := s.Bed.TLS("ga")
	creds, err := pki.LoadFiles(pki.Files{CA: files.CA, Cert: files.Cert, Key: files.Key}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	r.seal = signed.New(creds, nil, nil)
	r.seal.Adopt([]byte(r.get("charter")))
	for _, site := range s.Bed.Names() {
		r.was["site/"+site] = []byte(r.get("site/" + site))
	}
	return r
}

const prefix = "/weir/" + bed.Federation + "/"

func (r *records) ctl(args ...string) string {
	r.t.Helper()
	out, err := r.etcd.Ctl(r.Ctx, args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func (r *records) get(key string) string {
	r.t.Helper()
	return r.ctl("get", "--print-value-only", prefix+key)
}

// put writes a record, and returns the one that it takes the place of.
func (r *records) put(key string, value []byte) []byte {
	r.t.Helper()
	out := r.ctl("put", "--prev-kv", prefix+key, string(value))
	before, ok := strings.CutPrefix(out, "OK\n"+prefix+key+"\n")
	if !ok {
		r.t.Fatalf("%s had no record: %s", key, out)
	}
	return []byte(before)
}

// check returns why a value does not count.
func (r *records) check(key string, value []byte, is signed.Known) error {
	return r.seal.Strict(key, value, is, func(key string) []byte { return r.was[key] })
}

// since returns why a value is not the record that is known, nor one that its writer has put in its
// place; nil: it is, and is known from then on. Of those that are forged only control records
// change by themselves: when a disk is slow, another home takes over.
func (r *records) since(key string, value []byte) error {
	if bytes.Equal(value, r.was[key]) {
		return nil
	}
	if !strings.HasPrefix(key, "control/") {
		return errors.New("it is not the record that counts")
	}
	if err := r.check(key, value, signed.Known{Value: r.was[key]}); err != nil {
		return err
	}
	is, was := r.control(value), r.control(r.was[key])
	if !is.DescendsFrom(was) || is.Epoch >= forgedEpoch || is.Change == was.Change+1 && is.Same(was) {
		return fmt.Errorf("its home has signed it, and it does not go on from %+v", was)
	}
	r.t.Logf("the home has changed the control record: now %s leads %d members in epoch %d", is.Home.Gateway, len(is.Members), is.Epoch)
	r.was[key] = value
	return nil
}

// back is since of what is there now.
func (r *records) back(key string) error {
	r.t.Helper()
	return r.since(key, []byte(r.get(key)))
}

func (r *records) control(value []byte) federation.Control {
	r.t.Helper()
	var e struct{ Record federation.Control }
	if err := json.Unmarshal(value, &e); err != nil {
		r.t.Fatalf("%v: %s", err, value)
	}
	return e.Record
}

// atRest waits until the volume is whole and has the members that are promised, so that its home
// has no reason to change the control record.
func (r *records) atRest(control string) {
	r.t.Helper()
	for before := ""; ; {
		r.whole()
		text := r.get(control)
		if text == before && len(r.control([]byte(text)).Members) == 2 {
			return
		}
		before = text
		time.Sleep(100 * time.Millisecond)
	}
}

// forge changes a record and leaves its signature, which is of another then.
func (r *records) forge(key string, change func(map[string]any)) {
	r.t.Helper()
	var e map[string]json.RawMessage
	is := []byte(r.get(key))
	if err := json.Unmarshal(is, &e); err != nil || e["signature"] == nil {
		r.t.Fatalf("%s has no signature: %s (%v)", key, is, err)
	}
	if err := r.check(key, is, signed.Known{First: true}); err != nil {
		r.t.Fatalf("%s does not count before it is forged: %v: %s", key, err, is)
	}
	var record map[string]any
	if err := json.Unmarshal(e["record"], &record); err != nil {
		r.t.Fatal(err)
	}
	change(record)
	var err error
	if e["record"], err = json.Marshal(record); err != nil {
		r.t.Fatal(err)
	}
	forged, err := json.Marshal(e)
	if err != nil {
		r.t.Fatal(err)
	}
	r.was[key] = is
	before := r.put(key, forged) // it may have changed meanwhile
	if err := r.since(key, before); err != nil {
		r.t.Fatalf("%s is not as it was before it was forged: %v: %s", key, err, before)
	}
	if err := r.check(key, forged, signed.Known{Value: before}); !signed.IsForgery(err) {
		r.t.Fatalf("%s is forged, and counts: %v", key, err)
	}
}

// forgedEpoch is more than a volume gets to here.
const forgedEpoch = 99

// behind: the organization that runs the member of the registry at c writes records past the
// gatekeepers: they name it the volume's owner, its home, who has its key, and another site's
// organization. Who writes to the volume notices nothing. Gateways tell it, and put back what
// counts: what was there, or what its writer has written since.
func (s *scene) behind(t *testing.T) {
	r := s.records(t)
	uuid := r.get("name/v")
	control := "control/" + uuid
	r.atRest(control)
	changes := map[string]func(map[string]any){
		"volume/" + uuid: func(r map[string]any) { r["owner"] = "org-c" },
		"keyring/" + uuid: func(r map[string]any) {
			r["wrapped"] = map[string][]byte{"c": []byte("known to c")}
			r["generation"] = 99
		},
		control:  func(r map[string]any) { r["epoch"] = forgedEpoch },
		"site/a": func(r map[string]any) { r["organization"] = "org-c" },
	}
	for key := range changes { // records are judged by others
		r.was[key] = []byte(r.get(key))
	}
	for key, change := range changes {
		r.forge(key, change)
	}
	s.grows(t)
	begun := time.Now()
	for key := range changes {
		for err := r.back(key); err != nil; err = r.back(key) {
			if time.Since(begun) > time.Minute {
				t.Fatalf("%s is not put back: %v: %s", key, err, r.get(key))
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
		for key := range changes {
			if !strings.Contains(string(text), "audit=forged record="+key) {
				t.Errorf("the gateway of %s does not tell of %s", site, key)
			}
		}
	}
	s.whole()
	s.grows(t)
	for key := range changes {
		if err := r.back(key); err != nil {
			t.Errorf("%s did not stay as it was put back: %v: %s", key, err, r.get(key))
		}
	}
}
