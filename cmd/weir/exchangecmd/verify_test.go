// SPDX-License-Identifier: Apache-2.0

package exchangecmd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

const verifiedID = "6f1c2b6e-0000-4000-8000-000000000001"

// held is what people hold: objects, and the files to check them with.
type held struct {
	desk
	dir      string
	founding *pki.Authority
	jws      string
}

func (h *held) ok(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *held) file(name, text string) string {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	h.ok(os.WriteFile(path, []byte(text), 0o600))
	return path
}

// signs is a paper as somebody signed it, with a certificate of a day.
func (h *held) signs(organization string, p paper.Paper) map[string]any {
	h.t.Helper()
	who := pki.Identity{Federation: "demo", Organization: organization, Site: "ams", Gateway: "ann", Part: pki.PartPerson}
	now := func() time.Time { return clitest.Time }
	pair, err := h.founding.Issue(who, nil, now(), 24*time.Hour)
	h.ok(err)
	ca, err := h.founding.Pair()
	h.ok(err)
	creds, err := pki.Load(ca.Cert, pair, now)
	h.ok(err)
	value, err := federation.Encode(p)
	h.ok(err)
	value, err = signed.New(creds, nil, nil).Endorse("paper/"+p.Name(), value)
	h.ok(err)
	return map[string]any{"name": p.Name(), "revision": 7, "value": string(value)}
}

// object is a StorageAgreement that shows some papers.
func object(name, amount string, papers ...any) map[string]any {
	return map[string]any{"apiVersion": "storage.weir.dev/v1alpha1", "kind": "StorageAgreement", "metadata": map[string]any{"name": name},
		"status": map[string]any{"papers": papers, "guest": "DFN", "host": "SURF", "amount": amount, "until": "2027-05-04T10:00:00Z",
			"notice": "720h0m0s", "price": "free"}}
}

func (h *held) text(v any) string {
	h.t.Helper()
	text, err := json.Marshal(v)
	h.ok(err)
	return string(text)
}

func newHeld(t *testing.T) (h *held, papers [2]any) {
	h = &held{desk: desk{clitest.New(t, tree), t}, dir: t.TempDir()}
	var err error
	h.founding, err = pki.NewAuthority("demo", clitest.Time, 48*time.Hour)
	h.ok(err)
	ca, err := h.founding.Pair()
	h.ok(err)
	h.file("ca.crt", string(ca.Cert))
	c := pki.Charter{Federation: "demo", Serial: 3, Made: clitest.Time, SignedSince: clitest.Time.Add(-time.Hour)}
	for _, name := range []string{"DFN", "SURF"} {
		c.Set(pki.Organization{Name: name, Authorities: []string{string(ca.Cert)}})
	}
	h.jws, err = h.founding.SignCharter(c)
	h.ok(err)
	h.file("charter.jws", h.jws+"\n")
	said := func(by string) paper.Moment {
		return paper.Moment{At: clitest.Time, By: "weir://demo/" + by + "/ams/ann", Why: "a\n\x1b[2mtext"}
	}
	r := &paper.Request{Terms: paper.Terms{ID: verifiedID, Guest: "DFN", Host: "SURF", Offer: "disks", Kind: paper.KindStore, Site: "ams",
		Price: "free", Amount: 10 << 40, Until: clitest.Time.Add(365 * 24 * time.Hour), Notice: quantity.Duration(720 * time.Hour),
		AnswerBy: clitest.Time.Add(time.Hour)}, Made: said("DFN")}
	a := &paper.Answer{ID: verifiedID, Guest: "DFN", Host: "SURF", Accepted: &paper.Acceptance{Moment: said("SURF"), Terms: r.Digest()},
		Ready: &paper.Place{}}
	h.Now = clitest.Time.Add(100 * 24 * time.Hour) // the certificates and their authority have ended
	return h, [2]any{h.signs("DFN", paper.Paper{Request: r}), h.signs("SURF", paper.Paper{Answer: a})}
}

// Objects are checked alone and in lists, with a charter of a file, of the registry, and without.
func TestVerify(t *testing.T) {
	h, papers := newHeld(t)
	one := object(verifiedID, "10Ti", papers[0], papers[1])
	offline := []string{"exchange", "verify", "--ca", filepath.Join(h.dir, "ca.crt"), "--charter", filepath.Join(h.dir, "charter.jws")}
	out := h.Want(cli.ExitOK, "Checked for federation demo, by charter 3 of 2026-05-04T10:00:00Z.", h.text(one), offline...)
	for _, want := range []string{"Agreement " + verifiedID, "weir://demo/DFN/ams/ann (person)   2026-05-04T10:00:00Z  yes",
		"SURF lends DFN 10Ti at site ams until 2027-05-04T10:00:00Z. It is Active: until", "accepted: a��[2mtext "} {
		if !strings.Contains(out, want) {
			t.Errorf("%s\nhas no %q", out, want)
		}
	}
	list := map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{one, one}}
	path := h.file("list.json", h.text(list)+h.text(one))
	var all Verified
	out = h.Want(cli.ExitOK, "", "", append(offline, "-f", path, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all.Agreements) != 3 || all.Charter != 3 ||
		all.Agreements[2].Phase != paper.Active || len(all.Agreements[2].Papers) != 2 {
		t.Errorf("%v: %s", err, out)
	}
	ca := []string{"exchange", "verify", "--ca", filepath.Join(h.dir, "ca.crt")}
	h.Want(cli.ExitOK, "without a charter: its founding authority vouches for everybody", h.text(one), append(ca, "--no-charter")...)
	h.Want(cli.ExitOK, "without a charter", h.text(one), ca...) // the registry has none
	_, err := h.Registry.PutCharter(t.Context(), 0, federation.Charter{Serial: 3, Signed: h.jws})
	h.ok(err)
	h.Want(cli.ExitOK, "by charter 3", h.text(one), ca...)
}

// What is not genuine ends the command with an error, and so does what it cannot read.
func TestVerifyRefuses(t *testing.T) {
	h, papers := newHeld(t)
	file := func(name string) string { return filepath.Join(h.dir, name) }
	offline := []string{"exchange", "verify", "--ca", file("ca.crt"), "--charter", file("charter.jws")}
	one := h.text(object(verifiedID, "10Ti", papers[0], papers[1]))
	other := "6f1c2b6e-0000-4000-8000-000000000002"
	for _, c := range []struct{ input, says string }{
		{one + h.text(object(verifiedID, "10Ti", papers[1])), "1 of 2 agreements are not genuine"},
		{strings.Replace(one, `\"offer\":\"disks\"`, `\"offer\":\"discs\"`, 1), "not genuine: paper request/" + verifiedID},
		{h.text(object(other, "10Ti", papers[0], papers[1])), "it is not of agreement " + other},
		{h.text(object(verifiedID, "20Ti", papers[0], papers[1])), `status.amount "20Ti", and the paper that was signed says "10Ti"`},
		{strings.Replace(one, `"notice":"720h0m0s"`, `"notice":"1h0m0s"`, 1), `status.notice "1h0m0s"`},
		{strings.Replace(one, `"until":"2027`, `"until":"2028`, 1), `status.until "2028-05-04T10:00:00Z"`},
		{strings.Replace(one, `"host":"SURF"`, `"host":"KIT"`, 1), `status.host "KIT"`},
		{h.text(object(verifiedID, "10Ti")), "it has no paper request/" + verifiedID},
		{"", "the standard input: it has no StorageAgreement: give what `kubectl get storageagreement ID -o json` prints"},
		{"apiVersion: v1", "it is no JSON, from byte 0 on"},
		{one + "x", "it is no JSON"},
		{`"x"`, `it has "x", which is no object`},
		{strings.Replace(one, `"kind":"StorageAgreement"`, `"kind":"StorageOffer"`, 1),
			`is a "StorageOffer" of "storage.weir.dev/v1alpha1"`},
		{strings.Replace(one, `"storage.weir.dev/v1alpha1"`, `"example.org/v1"`, 1), `of "example.org/v1", and no StorageAgreement`},
		{strings.Replace(one, `"10Ti"`, `"much"`, 1), "object 1 of 1 is no StorageAgreement"},
		{`{"kind":"List","items":[]}`, "it has no StorageAgreement"},
	} {
		h.Want(cli.ExitError, c.says, c.input, offline...)
	}
	h.Want(cli.ExitError, `"genuine": false`, h.text(object(verifiedID, "10Ti", papers[1])), append(offline, "-o", "json")...)

	foreign, err := pki.NewAuthority("demo", clitest.Time, time.Hour)
	h.ok(err)
	pair, err := foreign.Pair()
	h.ok(err)
	h.file("foreign.crt", string(pair.Cert))
	h.file("empty", "")
	for _, c := range []struct {
		says string
		code int
		args []string
	}{
		{"no founding authority that is trusted here signed it: give the charter of that federation", cli.ExitError,
			[]string{"--ca", file("foreign.crt"), "--charter", file("charter.jws")}},
		{"not genuine", cli.ExitError, []string{"--ca", file("foreign.crt"), "--no-charter"}},
		{"and not of federation other", cli.ExitError, []string{"--ca", file("ca.crt"), "--no-charter", "--federation", "other"}},
		{"give the file ca.crt of the federation", cli.ExitError, []string{"--ca", file("empty"), "--no-charter"}},
		{"it is empty: have `weir federation show --save FILE` write it", cli.ExitError,
			[]string{"--ca", file("ca.crt"), "--charter", file("empty")}},
		{"--charter: open", cli.ExitError, []string{"--ca", file("ca.crt"), "--charter", file("none")}},
		{"--ca: open", cli.ExitError, []string{"--ca", file("none"), "--no-charter"}},
		{"--file: open", cli.ExitError, []string{"-f", file("none"), "--no-charter"}},
		{"write json, or leave it out", cli.ExitUsage, []string{"-o", "yaml", "--no-charter"}},
	} {
		h.Want(c.code, c.says, one, append([]string{"exchange", "verify"}, c.args...)...)
	}
}
