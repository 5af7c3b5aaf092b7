// SPDX-License-Identifier: Apache-2.0

package auditcmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/auditcmd"
	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/users"
	"github.com/weir-storage/weir/pki"
)

// TestAudit: what each site can do is counted, and each thing to look at is told, and told no more
// once it is mended.
func TestAudit(t *testing.T) {
	b := clitest.New(t, func(sh *cli.Shell, connect access.Connector) []*cobra.Command {
		return []*cobra.Command{auditcmd.Command(sh, connect)}
	})
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	founding, err := pki.NewAuthority("demo", clitest.Time, 365*24*time.Hour)
	must(err)
	root, err := founding.Pair()
	must(err)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	must(os.WriteFile(ca, root.Cert, 0o600))
	audit := func() auditcmd.Report {
		t.Helper()
		var r auditcmd.Report
		code, out, errs := b.Run("", "audit", "--ca", ca, "-o", "json")
		if code != cli.ExitOK {
			t.Fatal(errs)
		}
		must(json.Unmarshal([]byte(out), &r))
		return r
	}
	told := func(r auditcmd.Report) (out []string) {
		for _, f := range r.Findings {
			out = append(out, f.About+": "+f.What)
			if f.Do == "" {
				t.Errorf("%s: nothing is said of what to do", f.About)
			}
		}
		return out
	}
	is := func(what string, got, want []string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}

	const forced = "epoch 3 began by force by the word of weir://demo/SURF//kim at 2026-05-04T10:00:00Z: writes of before may be missing"
	// Nothing but a federation as it begins.
	is("at first", told(audit()), []string{"the federation: it has no charter, so who has the founding authority's key can be anybody"})

	ams, ein := b.Site("ams", "SURF"), b.Site("ein", "TUe")
	b.Site("waw", "PSNC")
	for _, v := range []federation.Volume{
		{UUID: "u1", Name: "shared", Owner: "SURF", Generation: 1, Sites: []string{"ams", "ein"},
			Grants: []federation.Grant{{Site: "ein", Namespace: "lab", Access: federation.ReadWrite},
				{Site: "waw", Namespace: "lab", Access: federation.ReadOnly},
				{Site: "typo", Namespace: "lab", Access: federation.ReadOnly}}},
		{UUID: "u2", Name: "own", Owner: "SURF", Generation: 1, Sites: []string{"ams", "waw"}, Blind: []string{"waw"}},
		{UUID: "u3", Name: "theirs", Owner: "TUe", Generation: 1, Sites: []string{"ein"}},
	} {
		_, err := b.Registry.CreateVolume(ctx, v, federation.Keyring{})
		must(err)
	}
	swap := func(volume string, home federation.Member, forced bool, word string) {
		t.Helper()
		_, err := b.Registry.SwapControl(ctx, volume, 0, federation.Control{Volume: volume, Epoch: 3, Home: home,
			Members: []federation.Member{home}, History: []federation.EpochStart{{Epoch: 1}, {Epoch: 3, Forced: forced, Word: word}}})
		must(err)
	}
	ein.Site, ams.Site = "ein", "ams"
	swap("u1", ein, true, "kim")
	swap("u2", ams, false, "")
	ring := func(volume string, sites ...string) {
		t.Helper()
		k := federation.Keyring{Volume: volume, Generation: 1, Wrapped: map[string][]byte{}}
		for _, s := range sites {
			k.Wrapped[s] = []byte("x")
		}
		_, err := b.Registry.PutKeyring(ctx, 0, k)
		must(err)
	}
	ring("u1", "ams", "ein", "waw", "gone")
	ring("u2", "ams", "waw")
	must(b.Registry.PutAdmission(ctx, federation.Admission{Volume: "u1", Site: "waw", Client: "10.0.0.9", Access: federation.ReadWrite}))
	must(b.Registry.PutAdmission(ctx, federation.Admission{Volume: "u1", Site: "ein", Client: "10.0.0.8", Access: federation.ReadWrite,
		Node: "n"}))
	r := audit()
	is("with volumes", told(r), []string{
		"the federation: it has no charter, so who has the founding authority's key can be anybody",
		"site ams: every organization may have copies there",
		"volume own: site waw (PSNC) has its key, and no reason to have it any more",
		"volume shared: its home is at site ein (TUe), which decides what it has",
		"volume shared: " + forced,
		"volume shared: it is granted to site typo, which is not registered",
		"volume shared: 1 clients at site waw are known by their address only",
		"volume shared: root of the clients at site ein (TUe) is root of the volume",
		"volume shared: root of the clients at site waw (PSNC) is root of the volume",
		"volume shared: site gone, which is not registered any more, has its key",
	})
	var sites []string
	for _, s := range r.Sites {
		text, err := json.Marshal(s)
		must(err)
		sites = append(sites, string(text))
	}
	is("sites", sites, []string{
		`{"site":"ams","organization":"SURF","keys":2,"copies":2,"blind":0,"homes":1,"writes":0,"reads":0,"clients":0}`,
		`{"site":"ein","organization":"TUe","keys":1,"copies":1,"blind":0,"homes":1,"writes":1,"reads":0,"clients":1}`,
		`{"site":"gone","keys":1,"copies":0,"blind":0,"homes":0,"writes":0,"reads":0,"clients":0}`,
		`{"site":"typo","keys":0,"copies":0,"blind":0,"homes":0,"writes":0,"reads":1,"clients":0}`,
		`{"site":"waw","organization":"PSNC","keys":2,"copies":0,"blind":1,"homes":0,"writes":1,"reads":0,"clients":1}`,
	})
	// What a site wrote itself is no reason, once the owner's grant is taken back.
	must(b.Registry.PutAdmission(ctx, federation.Admission{Volume: "u2", Site: "waw", Client: "10.0.0.7", Access: federation.ReadWrite,
		Node: "n"}))
	if again := audit(); !slices.Equal(told(again), told(r)) || !slices.Equal(again.Sites, r.Sites) {
		t.Errorf("an admission that a foreign site wrote changes it: %v, %v", told(again), again.Sites)
	}
	b.Want(cli.ExitUsage, "the federation has none of this name", "", "audit", "--ca", ca, "--organization", "Surf")
	b.Want(cli.ExitError, "there are 10 findings", "", "audit", "--ca", ca, "--check")
	b.Want(cli.ExitOK, "Organization SURF has 2 volumes in federation demo", "", "audit", "--ca", ca)
	b.Want(cli.ExitOK, "Organization TUe has 1 volumes", "", "audit", "--ca", ca, "--organization", "TUe")

	// What is mended is told no more, and what a charter says is looked at.
	v, rev, err := b.Registry.GetVolume(ctx, "u1")
	must(err)
	v.Grants = v.Grants[:2]
	v.Clients = map[string]users.Policy{"ein": {Squash: users.SquashRoot},
		"waw": {UIDs: []users.Range{{Client: 1, Volume: 1}}, Certificates: users.CertificatesRequired}}
	_, err = b.Registry.UpdateVolume(ctx, rev, v)
	must(err)
	of := func(organization string, lasts time.Duration) string {
		t.Helper()
		a, err := pki.NewOrganizationAuthority("demo", organization, clitest.Time, lasts)
		must(err)
		p, err := a.Pair()
		must(err)
		one, err := pki.FirstCertificate(p.Cert)
		must(err)
		return one
	}
	own, err := pki.FirstCertificate(root.Cert)
	must(err)
	const year = 365 * 24 * time.Hour
	brief := of("TUe", 24*time.Hour)
	print, err := pki.Fingerprint(brief)
	must(err)
	signed, err := founding.SignCharter(pki.Charter{Federation: "demo", Serial: 1, Made: clitest.Time, Organizations: []pki.Organization{
		{Name: "PSNC", Authorities: []string{of("PSNC", year)}, Expelled: &pki.Expulsion{At: clitest.Time, Why: "a test"}},
		{Name: "SURF", Authorities: []string{own}},
		{Name: "TUe", Authorities: []string{of("TUe", year), brief}},
	}})
	must(err)
	_, err = b.Registry.PutCharter(ctx, 0, federation.Charter{Serial: 1, Signed: signed})
	must(err)
	ends := cli.Stamp(clitest.Time.Add(24 * time.Hour))
	is("with a charter", told(audit()), []string{
		"organization SURF: the founding authority vouches for it, and can be it",
		"organization TUe: 2 authorities vouch for it",
		"organization TUe: its authority " + print[:16] + " ends at " + ends,
		"site ams: every organization may have copies there",
		"volume own: site waw of PSNC, which was expelled, has its key",
		"volume shared: its home is at site ein (TUe), which decides what it has",
		"volume shared: " + forced,
		"volume shared: site gone, which is not registered any more, has its key",
		"volume shared: site waw of PSNC, which was expelled, has its key",
	})
	other := filepath.Join(t.TempDir(), "other.crt")
	another, err := pki.NewAuthority("demo", clitest.Time, year)
	must(err)
	pair, err := another.Pair()
	must(err)
	must(os.WriteFile(other, pair.Cert, 0o600))
	b.Want(cli.ExitError, "no founding authority that is trusted here signed it", "", "audit", "--ca", other)
}
