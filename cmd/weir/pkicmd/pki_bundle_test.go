// SPDX-License-Identifier: Apache-2.0

package pkicmd

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/pki"
)

// bundled runs `weir pki bundle` for site utr. It adds flags last: of a repeated flag the last
// value counts.
func bundled(t *testing.T, b *clitest.Bench, code int, text, dir, out string, flags ...string) {
	t.Helper()
	b.Want(code, text, "", append([]string{"pki", "bundle", "--dir", dir, "--organization", "Universiteit Utrecht", "--site", "utr",
		"--host", "203.0.113.20", "--out", out}, flags...)...)
}

func TestPKIBundle(t *testing.T) {
	b := clitest.New(t, tree)
	dir := t.TempDir()
	ca, out := filepath.Join(dir, "ca"), filepath.Join(dir, "certificates.yaml")
	bundled(t, b, cli.ExitError, "make one with `weir pki init --dir "+ca, ca, out)
	b.Want(cli.ExitOK, "", "", "pki", "init", "--dir", ca, "--federation", "demo")
	bundled(t, b, cli.ExitOK, out+"\n", ca, out, "--host", "gateway.utr.example.org,2001:db8::20", "--valid-for", "48h")
	if i, err := os.Stat(out); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("its mode: %v, %v", i.Mode(), err)
	}
	text := clitest.Read(t, out)
	var v bundleValues
	if err := yaml.UnmarshalStrict(text, &v); err != nil {
		t.Fatal(err)
	}
	p := v.Certificates.Provided
	if v.Certificates.Mode != "provided" || p.IssuedFor != (issuedFor{"demo", "Universiteit Utrecht", "utr", "utr-0"}) {
		t.Errorf("mode %q, issued for %+v", v.Certificates.Mode, p.IssuedFor)
	}
	authority, err := os.ReadFile(filepath.Join(ca, "ca.crt"))
	if err != nil || p.CA != string(authority) {
		t.Errorf("ca is not ca.crt: %v", err)
	}
	if key, err := os.ReadFile(filepath.Join(ca, "ca.key")); err != nil || bytes.Contains(text, bytes.Split(key, []byte("\n"))[1]) {
		t.Errorf("the authority's key is in it, or is not there: %v", err)
	}
	hosts := []string{"gateway.utr.example.org", "203.0.113.20", "2001:db8::20"}
	for name, part := range map[string]struct {
		pairValues
		part  pki.Part
		hosts []string
	}{"utr-0": {p.Gateway, pki.PartGateway, append([]string{"weir-gateway-metrics.weir-system.svc"}, hosts...)},
		"utr-operator":       {p.Operator, pki.PartOperator, []string{"weir-operator-metrics.weir-system.svc"}},
		"utr-csi-controller": {p.CSIController, pki.PartController, []string{"weir-csi-controller-metrics.weir-system.svc"}},
		"utr-csi-node":       {p.CSINode, pki.PartNode, []string{"weir-csi-node-metrics.weir-system.svc"}}} {
		c, err := pki.Load([]byte(p.CA), pki.Pair{Cert: []byte(part.Cert), Key: []byte(part.Key)}, func() time.Time { return clitest.Time })
		if err != nil ||
			c.Identity() != (pki.Identity{Federation: "demo", Organization: "Universiteit Utrecht", Site: "utr", Gateway: name,
				Part: part.part}) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want := clitest.Time.Add(48 * time.Hour); !c.Expires().Equal(want) {
			t.Errorf("%s expires at %v, not at %v", name, c.Expires(), want)
		}
		block, _ := pem.Decode([]byte(part.Cert))
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		got := cert.DNSNames
		for _, ip := range cert.IPAddresses {
			got = append(got, ip.String())
		}
		if !slices.Equal(got, part.hosts) {
			t.Errorf("%s is at %q, not at %q", name, got, part.hosts)
		}
	}
	bundled(t, b, cli.ExitError, `--out "`+out+`": there is such a file`, ca, out)
	if again, err := os.ReadFile(out); err != nil || !bytes.Equal(again, text) {
		t.Errorf("the file has changed: %v", err)
	}
}

// While one authority takes over from another, the site trusts both.
func TestPKIBundleOfTwoAuthorities(t *testing.T) {
	b := clitest.New(t, tree)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	var both []byte
	for _, d := range []string{"before", "after", "other"} {
		b.Want(cli.ExitOK, "", "", "pki", "init", "--dir", path(d), "--federation", "demo")
		if d != "other" {
			both = append(both, clitest.Read(t, path(d+"/ca.crt"))...)
		}
	}
	clitest.Put(t, path("both.crt"), both)
	for _, d := range []string{"before", "after"} {
		out := path(d + ".yaml")
		bundled(t, b, cli.ExitOK, "", path(d), out, "--ca", path("both.crt"))
		var v bundleValues
		if err := yaml.Unmarshal(clitest.Read(t, out), &v); err != nil || v.Certificates.Provided.CA != string(both) {
			t.Errorf("ca is %s, %v", v.Certificates.Provided.CA, err)
		}
	}
	bundled(t, b, cli.ExitError, "it does not go with the authority in "+path("other"), path("other"), path("other.yaml"), "--ca",
		path("both.crt"))
	bundled(t, b, cli.ExitError, `--ca "`+path("none.crt")+`"`, path("before"), path("other.yaml"), "--ca", path("none.crt"))
	if _, err := os.Stat(path("other.yaml")); !os.IsNotExist(err) {
		t.Errorf("a file was written: %v", err)
	}
}

// Each error names flag, value and remedy, and nothing is written.
func TestPKIBundleRefuses(t *testing.T) {
	b := clitest.New(t, tree)
	dir := t.TempDir()
	ca, out := filepath.Join(dir, "ca"), filepath.Join(dir, "certificates.yaml")
	b.Want(cli.ExitOK, "", "", "pki", "init", "--dir", ca, "--federation", "demo", "--valid-for", "1h")
	for _, c := range []struct {
		code  int
		text  string
		flags []string
	}{
		{cli.ExitUsage, "no --organization: name the institution", []string{"--organization", ""}},
		{cli.ExitUsage, "no --site: name the site", []string{"--site", ""}},
		{cli.ExitUsage, "no --out: name the file", []string{"--out", ""}},
		{cli.ExitUsage, `--site "` + strings.Repeat("a", 49) + `": it has 49 characters`, []string{"--site", strings.Repeat("a", 49)}},
		{cli.ExitUsage, "it has 64 characters: shorten it", []string{"--organization", strings.Repeat("ä", 64)}},
		{cli.ExitUsage, `--gateway "utr-csi-node": another part of the site has that name`, []string{"--gateway", "utr-csi-node"}},
		{cli.ExitUsage, "--valid-for 0s: give a positive time", []string{"--valid-for", "0"}},
		{cli.ExitError, `site is "Utr": use a DNS label`, []string{"--site", "Utr"}},
		{cli.ExitError, `gateway is "g.1": use a DNS label`, []string{"--gateway", "g.1"}},
		{cli.ExitError, `organization is "a/b"`, []string{"--organization", "a/b"}},
		{cli.ExitError, `host "203.0.113.20:7001": give IP addresses and DNS names, without port`, []string{"--host", "203.0.113.20:7001"}},
		{cli.ExitError, `--out "` + ca + `/ca.crt/x"`, []string{"--out", ca + "/ca.crt/x"}},
	} {
		bundled(t, b, c.code, c.text, ca, out, c.flags...)
	}
	b.Want(cli.ExitUsage, "no --host: give the address", "", "pki", "bundle", "--dir", ca, "--organization", "U", "--site", "utr",
		"--out", out)
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("a file was written: %v", err)
	}
}
