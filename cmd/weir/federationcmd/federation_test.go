// SPDX-License-Identifier: Apache-2.0

package federationcmd_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/federationcmd"
	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

type bench struct {
	*clitest.Bench
	*testing.T
	dir string // the founding authority's
}

// run runs `weir federation` with the founding authority.
func (b *bench) run(code int, text string, args ...string) string {
	b.Helper()
	args = append([]string{"federation", args[0], "--ca", filepath.Join(b.dir, "ca.crt")}, args[1:]...)
	if args[1] != "show" {
		args = append(args, "--dir", b.dir)
	}
	return b.Want(code, text, "", args...)
}

// charter is what the registry has.
func (b *bench) charter() *pki.Charter {
	b.Helper()
	c, _, err := b.Registry.GetCharter(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	roots, err := os.ReadFile(filepath.Join(b.dir, "ca.crt"))
	if err != nil {
		b.Fatal(err)
	}
	is, err := pki.ReadCharter(roots, "demo", c.Signed)
	if err != nil {
		b.Fatal(err)
	}
	if is.Serial != c.Serial {
		b.Fatalf("serial %d is said to be %d", is.Serial, c.Serial)
	}
	return &is
}

// authority writes an authority into a new folder, with what else its file has.
func authority(t *testing.T, organization string, also ...byte) string {
	t.Helper()
	dir := t.TempDir()
	a, err := pki.NewAuthority("demo", clitest.Time, 24*time.Hour)
	if organization != "" {
		a, err = pki.NewOrganizationAuthority("demo", organization, clitest.Time, 24*time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Pair()
	if err != nil {
		t.Fatal(err)
	}
	p.Cert = append(p.Cert, also...)
	if _, _, err := p.Write(dir, "ca"); err != nil {
		t.Fatal(err)
	}
	return dir
}

func newBench(t *testing.T) *bench {
	b := &bench{Bench: clitest.New(t, func(sh *cli.Shell, connect access.Connector) []*cobra.Command {
		return []*cobra.Command{federationcmd.Command(sh, connect)}
	}), T: t, dir: authority(t, "")}
	b.Site("ams", "SURF")
	b.Site("ein", "TUe")
	return b
}

func TestCharter(t *testing.T) {
	b := newBench(t)
	founding, err := os.ReadFile(filepath.Join(b.dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	uva := filepath.Join(authority(t, "UvA", founding...), "ca.crt") // with what UvA trusts behind it
	tue, tue2 := filepath.Join(authority(t, "TUe"), "ca.crt"), filepath.Join(authority(t, "TUe"), "ca.crt")

	b.run(cli.ExitOK, "has no charter: its founding authority vouches for everybody", "show")
	saved := filepath.Join(t.TempDir(), "charter.jws")
	b.run(cli.ExitError, "--save: federation demo has no charter", "show", "--save", saved)
	b.run(cli.ExitUsage, "no --authority", "admit", "UvA")
	b.run(cli.ExitError, `"UvA": the charter has SURF, TUe`, "expel", "UvA", "--why", "x")

	// The first one: those that have sites stay.
	b.run(cli.ExitOK, "organization UvA is of the federation, with authority", "admit", "UvA", "--authority", uva)
	is := b.charter()
	if is.Serial != 1 || len(is.Organizations) != 3 || is.Find("SURF").Authorities[0] != string(founding) ||
		strings.Count(is.Find("UvA").Authorities[0], "BEGIN") != 1 {
		t.Fatalf("%+v", is)
	}
	b.run(cli.ExitOK, "charter 1", "show", "--save", saved)
	if c, err := pki.ReadCharter(founding, "demo", string(clitest.Read(t, saved))); err != nil || c.Serial != 1 {
		t.Errorf("the charter that was saved is %+v: %v", c, err)
	}
	b.run(cli.ExitOK, "nothing to do", "admit", "UvA", "--authority", uva)
	if b.charter().Serial != 1 {
		t.Error("nothing was to do, and there is another charter")
	}

	// An authority takes over.
	b.run(cli.ExitError, "has no other authority", "drop", "TUe", "--authority", filepath.Join(b.dir, "ca.crt"))
	b.run(cli.ExitOK, "TUe is of the federation, with authority", "admit", "TUe", "--authority", tue)
	b.run(cli.ExitOK, "does not vouch for organization TUe any more", "drop", "TUe", "--authority", filepath.Join(b.dir, "ca.crt"))
	b.run(cli.ExitOK, "nothing to do", "drop", "TUe", "--authority", filepath.Join(b.dir, "ca.crt"))
	b.run(cli.ExitOK, "with authority", "admit", "TUe", "--authority", tue2)
	b.run(cli.ExitOK, "any more", "drop", "TUe", "--authority", tue)
	text, err := os.ReadFile(tue2)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.charter().Find("TUe").Authorities; !slices.Equal(got, []string{string(text)}) {
		t.Errorf("TUe's authorities are %q", got)
	}

	// Out and in again.
	b.run(cli.ExitUsage, "no --why", "expel", "TUe")
	b.run(cli.ExitError, "your own certificate", "expel", "SURF", "--why", "x")
	b.run(cli.ExitOK, "organization TUe is expelled; its sites: ein", "expel", "TUe", "--why", "key stolen")
	b.run(cli.ExitOK, "expelled already", "expel", "TUe", "--why", "again")
	b.run(cli.ExitOK, "key stolen", "show")
	b.run(cli.ExitOK, `"why": "key stolen"`, "show", "-o", "json")
	b.run(cli.ExitOK, "organization TUe is of the federation again", "admit", "TUe")
	if o := b.charter().Find("TUe"); o.Expelled != nil || len(o.Authorities) != 1 {
		t.Errorf("%+v", o)
	}
	// A key that was stolen does not come back with the organization.
	b.run(cli.ExitOK, "is expelled", "expel", "TUe", "--why", "key stolen")
	b.run(cli.ExitOK, "is of the federation again, with authority", "admit", "TUe", "--authority", tue)
	if text, err = os.ReadFile(tue); err != nil || !slices.Equal(b.charter().Find("TUe").Authorities, []string{string(text)}) {
		t.Errorf("TUe's authorities are %q: %v", b.charter().Find("TUe").Authorities, err)
	}
	b.run(cli.ExitOK, "is expelled", "expel", "TUe", "--why", "key stolen")
	b.run(cli.ExitOK, "does not vouch", "drop", "TUe", "--authority", tue)
	b.run(cli.ExitUsage, "no --authority", "admit", "TUe")
	b.run(cli.ExitOK, "with authority", "admit", "TUe", "--authority", tue2)
	b.run(cli.ExitError, "--unlisted", "expel", "Registrar", "--why", "x")
	b.run(cli.ExitOK, "organization Registrar is expelled; its sites: none", "expel", "Registrar", "--why", "x", "--unlisted")
	serial := b.charter().Serial

	// What cannot be an authority of that organization.
	for text, file := range map[string]string{
		"is of organization \"UvA\"": uva,
		"no PEM block":               filepath.Join(b.dir, "ca.key"),
		"no such file":               filepath.Join(b.dir, "none"),
	} {
		b.run(cli.ExitError, text, "admit", "TUe", "--authority", file)
	}
	if b.charter().Serial != serial {
		t.Error("what was refused changed the charter")
	}

	// The registry has an old one, or one that nobody signed: the founding authority's folder
	// knows.
	old, _, err := b.Registry.GetCharter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.run(cli.ExitOK, "is of the federation, with", "admit", "KNMI", "--authority", filepath.Join(authority(t, "KNMI"), "ca.crt"))
	for name, put := range map[string]federation.Charter{"an old one": old, "a forged one": {Serial: 1, Signed: "x"}} {
		_, rev, err := b.Registry.GetCharter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Registry.PutCharter(t.Context(), rev, put); err != nil {
			t.Fatal(err)
		}
		if name == "a forged one" {
			b.run(cli.ExitError, "charter refused", "show")
		}
		b.run(cli.ExitOK, "published again", "admit", "UvA", "--authority", uva)
		if is := b.charter(); is.Serial <= serial || len(is.Organizations) != 5 {
			t.Errorf("%s: %+v", name, is)
		}
	}
}

// Another founding authority takes over: it signs the charter anew, when both are trusted.
func TestAnotherFounder(t *testing.T) {
	b := newBench(t)
	uva := filepath.Join(authority(t, "UvA"), "ca.crt")
	b.run(cli.ExitOK, "UvA", "admit", "UvA", "--authority", uva)
	next := authority(t, "")
	b.Want(cli.ExitError, "is not one that --ca", "", "federation", "sign", "--ca", filepath.Join(b.dir, "ca.crt"), "--dir", next)
	both := filepath.Join(t.TempDir(), "both.crt")
	var text []byte
	for _, dir := range []string{b.dir, next} {
		p, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, p...)
	}
	if err := os.WriteFile(both, text, 0o600); err != nil {
		t.Fatal(err)
	}
	was, err := os.ReadFile(filepath.Join(b.dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitOK, "the charter is signed (charter 2)", "", "federation", "sign", "--ca", both, "--dir", next)
	b.dir = next
	founding, err := os.ReadFile(filepath.Join(next, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if is := b.charter(); is.Serial != 2 || len(is.Find("UvA").Authorities) != 1 ||
		!slices.Equal(is.Find("TUe").Authorities, []string{string(was), string(founding)}) {
		t.Errorf("%+v", is)
	}
	organization := authority(t, "UvA")
	b.Want(cli.ExitError, "the founding authority of federation demo signs", "", "federation", "sign", "--ca", both, "--dir", organization)
}

// A record that nobody can read does not begin a federation anew by itself.
func TestNoCharterByAccident(t *testing.T) {
	b := newBench(t)
	uva := filepath.Join(authority(t, "UvA"), "ca.crt")
	b.run(cli.ExitOK, "UvA", "admit", "UvA", "--authority", uva)
	b.run(cli.ExitOK, "expelled", "expel", "TUe", "--why", "x")
	if err := os.Remove(filepath.Join(b.dir, "charter.jws")); err != nil {
		t.Fatal(err)
	}
	_, rev, err := b.Registry.GetCharter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	forged := federation.Charter{Serial: 9, Signed: "x"}
	if _, err := b.Registry.PutCharter(t.Context(), rev, forged); err != nil {
		t.Fatal(err)
	}
	b.run(cli.ExitError, "begin anew with --serial", "admit", "UvA", "--authority", uva)
	if c, _, err := b.Registry.GetCharter(t.Context()); err != nil || c != forged {
		t.Errorf("%+v: %v", c, err)
	}
	b.run(cli.ExitOK, "(charter 12)", "admit", "UvA", "--authority", uva, "--serial", "12")
}

// Records that nobody signed are signed by an administrator, and then the charter asks for
// signatures; a federation that has none such begins with that.
func TestRequireSignatures(t *testing.T) {
	b := newBench(t)
	load := func(dir string) *pki.Credentials {
		t.Helper()
		a, err := pki.ReadAuthority(dir, "ca")
		if err != nil {
			t.Fatal(err)
		}
		p, err := a.Issue(pki.Identity{Federation: "demo", Organization: "SURF", Site: "ams", Gateway: "root",
			Part: pki.PartAdministrator}, nil,
			clitest.Time, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		roots, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := pki.Load(roots, p, func() time.Time { return clitest.Time })
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	server := memory.NewServer(1)
	b.Registry = server.Client(nil) // of an earlier release
	b.Site("ams", "SURF")
	b.Site("ein", "TUe")
	b.Registry = server.Sealed(nil, signed.New(load(b.dir), nil, nil))
	b.run(cli.ExitOK, "is of the federation, with authority", "admit", "UvA", "--authority", filepath.Join(authority(t, "UvA"), "ca.crt"))
	if !b.charter().SignedSince.IsZero() {
		t.Error("records have no signature, and the first charter asks for one")
	}
	b.run(cli.ExitOK, "count without a signature", "show")
	b.run(cli.ExitOK, "2 had none of who may write them, and have yours", "require-signatures")
	if b.charter().SignedSince.IsZero() {
		t.Error("the charter does not ask for signatures")
	}
	b.run(cli.ExitOK, "count only with a signature", "show")
	b.run(cli.ExitOK, "nothing to do", "require-signatures")
	if all, err := b.Registry.Sites(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("sites %+v, %v", all, err)
	}
	other := federation.Site{Name: "gro", Organization: "RUG"}
	if err := server.Client(nil).Register(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Registry.Sites(t.Context()); !errors.Is(err, federation.ErrForged) {
		t.Errorf("written without a signature: %v", err)
	}
	b.run(cli.ExitError, "have none that counts: site/gro: somebody may have written them", "require-signatures")
	b.run(cli.ExitOK, "1 had none of who may write them, and have yours", "require-signatures", "--again")
	if all, err := b.Registry.Sites(t.Context()); err != nil || len(all) != 3 {
		t.Errorf("sites %+v, %v", all, err)
	}

	fresh := newBench(t)
	fresh.Registry = memory.NewServer(1).Sealed(nil, signed.New(load(fresh.dir), nil, nil))
	fresh.Site("ams", "SURF")
	fresh.run(cli.ExitOK, "with authority", "admit", "UvA", "--authority", filepath.Join(authority(t, "UvA"), "ca.crt"))
	if fresh.charter().SignedSince.IsZero() {
		t.Error("all records have a signature, and the first charter does not ask for one")
	}
	if !fresh.charter().Conceals {
		t.Error("the first charter shows all volumes to all")
	}
}

// TestConceal: a federation that begins now conceals volumes, and an older one when it is told to.
func TestConceal(t *testing.T) {
	b := newBench(t)
	b.run(cli.ExitOK, "ams", "vouch", "jurisdiction=nl", "ams") // sites of an earlier release are there
	b.run(cli.ExitOK, "All organizations are shown all volumes: `weir federation conceal` ends that", "show")
	b.run(cli.ExitOK, "nothing to do", "conceal", "--end")
	b.run(cli.ExitOK, "an organization is shown only the volumes that concern it", "conceal")
	b.run(cli.ExitOK, "nothing to do", "conceal")
	b.run(cli.ExitOK, "An organization is shown only the volumes that concern it.", "show")
	if c := b.charter(); !c.Conceals || c.Find("SURF") == nil {
		t.Errorf("the charter is %+v", c)
	}
	b.run(cli.ExitOK, "all organizations are shown all volumes", "conceal", "--end")
	if b.charter().Conceals {
		t.Errorf("the charter is %+v", b.charter())
	}
}

// TestVouch: what the charter says of sites is added, changed and taken back.
func TestVouch(t *testing.T) {
	b := newBench(t)
	b.run(cli.ExitError, `site "amss"`, "vouch", "jurisdiction=nl", "amss")
	b.run(cli.ExitUsage, "write LABEL=VALUE", "vouch", "jurisdiction", "ams")
	b.run(cli.ExitError, "as Kubernetes has them", "vouch", "jurisdiction=no value", "ams")
	b.run(cli.ExitError, "choose another name", "vouch", "region.weir.dev=nl", "ams")
	b.run(cli.ExitOK, "label jurisdiction counts as the charter says: ams jurisdiction=nl, ein jurisdiction=nl", "vouch", "jurisdiction=nl",
		"ein", "ams")
	b.run(cli.ExitOK, "nothing to do", "vouch", "jurisdiction=nl", "ams")
	b.run(cli.ExitOK, "ams jurisdiction=de, ein jurisdiction=nl", "vouch", "jurisdiction=de", "ams")
	b.run(cli.ExitOK, "ein does not have jurisdiction", "vouch", "jurisdiction=", "ein")
	b.run(cli.ExitOK, "Of site ein the charter says: does not have jurisdiction", "show")
	b.run(cli.ExitOK, "as the charter says: ein does not have jurisdiction", "vouch", "jurisdiction-", "ams")
	b.run(cli.ExitOK, "of no site any more, and what sites say of themselves counts again", "vouch", "jurisdiction-", "ein")
	b.run(cli.ExitOK, "nothing to do", "vouch", "jurisdiction-", "ein")
	if c := b.charter(); len(c.Labels) != 0 || c.Find("SURF") == nil {
		t.Errorf("the charter is %+v", c)
	}
}
