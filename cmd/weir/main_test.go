// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Wrong usage ends with 2 and says what is wrong; failure with 1.
func TestExitCodes(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		code int
		text string
		args []string
	}{
		{exitOK, "Available Commands", nil},
		{exitOK, "Available Commands", []string{"volume"}},
		{exitOK, "weir ", []string{"version"}},
		{exitUsage, `weir: there is no command "fly"`, []string{"fly"}},
		{exitUsage, `weir volume: there is no command "fly"`, []string{"volume", "fly"}},
		{exitUsage, "unknown flag: --fly", []string{"status", "--fly"}},
		{exitUsage, "write `weir volume delete NAME", []string{"volume", "delete"}},
		{exitUsage, "write `weir failover VOLUME", []string{"failover"}},
		{exitUsage, `-o "yaml": write json`, []string{"status", "-o", "yaml"}},
		{exitUsage, "no -f", []string{"volume", "create"}},
		{exitUsage, "no --config", []string{"gateway"}},
		{exitUsage, "no --federation", []string{"pki", "init"}},
		{exitUsage, "no --site", []string{"pki", "issue", "--organization", "SURF", "--gateway", "g"}},
		{exitError, "read configuration: ", []string{"gateway", "--config", "/nonexistent/weir.yaml"}},
		{exitError, "there is no volume of this name", []string{"status", "data"}},
	} {
		b.want(c.code, c.text, "", c.args...)
	}
}

func TestPKI(t *testing.T) {
	b := newBench(t)
	dir := filepath.Join(t.TempDir(), "pki")
	b.want(exitError, "make one with `weir pki init --dir "+dir, "", "pki", "issue", "--dir", dir, "--organization", "SURF", "--site", "ams", "--gateway", "ams-1")
	b.want(exitOK, dir+"/ca.crt\n"+dir+"/ca.key\n", "", "pki", "init", "--dir", dir, "--federation", "demo")
	b.want(exitError, "remove the old one if nobody uses it", "", "pki", "init", "--dir", dir, "--federation", "demo")
	b.want(exitOK, dir+"/ams-1.crt\n"+dir+"/ams-1.key\n", "", "pki", "issue", "--dir", dir, "--organization", "SURF", "--site", "ams", "--gateway", "ams-1", "--host", "10.0.1.10,ams-1.example.org", "--host", "::1")
	b.want(exitUsage, "the authority's files have that name", "", "pki", "issue", "--dir", dir, "--organization", "SURF", "--site", "ams", "--gateway", "ca")
	b.want(exitOK, "identity:   weir://demo/SURF/ams/ams-1\nhosts:      ams-1.example.org, 10.0.1.10, ::1\nissued by:  Weir federation demo\n", "", "pki", "show", dir+"/ams-1.crt")
	b.want(exitOK, "(valid)", "", "pki", "show", dir+"/ams-1.crt")
	b.want(exitOK, "authority:  Weir federation demo", "", "pki", "show", dir+"/ca.crt")
	b.want(exitError, "no PEM block CERTIFICATE", "", "pki", "show", dir+"/ams-1.key")
	if i, err := os.Stat(dir + "/ams-1.key"); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("mode of the key: %v, %v", i.Mode(), err)
	}
	text, err := os.ReadFile(dir + "/ams-1.crt")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := showCertificate(text, storyTime.AddDate(2, 0, 0)); err != nil || !strings.Contains(out, "(EXPIRED)") {
		t.Errorf("%s, %v", out, err)
	}
}
