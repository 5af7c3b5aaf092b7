// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxLines is the most lines of a file that a person wrote. Generated ones may be longer.
const maxLines = 500

func TestFilesAreShort(t *testing.T) {
	for _, f := range goFiles(t) {
		if n := strings.Count(f.text, "\n"); n > maxLines && !f.generated() {
			t.Errorf("%s has %d lines: split it, at most %d are read with pleasure", f.path, n, maxLines)
		}
	}
}

func TestLicence(t *testing.T) {
	const want = "// SPDX-License-Identifier: Apache-2.0\n\n"
	for _, f := range goFiles(t) {
		if !f.generated() && !strings.HasPrefix(f.text, want) {
			t.Errorf("%s does not begin with the line %q and an empty line", f.path, strings.TrimSpace(want))
		}
	}
}

func TestPackagesAreDescribed(t *testing.T) {
	files := goFiles(t)
	described := make(map[string]bool)
	for _, f := range files {
		if f.ast.Doc != nil && !f.isTest() || f.generated() {
			described[f.pkg()] = true
		}
	}
	for _, pkg := range packages(files) {
		if !described[pkg] {
			t.Errorf("package %s has no comment that says what it is, its formats and rules: write one above a package clause", pkg)
		}
	}
}

// unfinished are marks of unfinished work. registries are hosts of package registries, which belong
// into people's own configuration. Both are put together here so that this file passes.
var (
	unfinished = regexp.MustCompile(`\b(` + "TO" + "DO|" + "FIX" + "ME|" + "XX" + "X" + `)\b`)
	registries = regexp.MustCompile(strings.ReplaceAll(
		`\b(proxy_golang_org|sum_golang_org|goproxy_io|docker_io|ghcr_io|gcr_io|quay_io|registry_k8s_io|public_ecr_aws|`+
			`registry_npmjs_org|pypi_org|crates_io|deb_debian_org|security_debian_org)\b`, "_", `\.`))
)

func TestTexts(t *testing.T) {
	walk(t, func(name string) {
		switch path.Base(name) {
		case "go.sum", "LICENSE":
			return
		}
		if path.Ext(name) == ".png" {
			return
		}
		for i, line := range strings.Split(read(t, name), "\n") {
			if m := unfinished.FindString(line); m != "" {
				t.Errorf("%s:%d: %s: do it, or say in words what is not there", name, i+1, m)
			}
			if m := registries.FindString(line); m != "" {
				t.Errorf("%s:%d: %s: a registry's host has no place here: use its ordinary client, which is configured elsewhere", name,
					i+1, m)
			}
		}
	})
}

func TestTextsCanFail(t *testing.T) {
	if !unfinished.MatchString("// TO" + "DO: more") {
		t.Error("a mark of unfinished work is not found")
	}
	if !registries.MatchString("image: ghcr" + ".io/x/y") {
		t.Error("a registry's host is not found")
	}
}

var link = regexp.MustCompile(`\]\(([^()\s]+)\)`)

func TestLinks(t *testing.T) {
	walk(t, func(name string) {
		if !strings.HasSuffix(name, ".md") {
			return
		}
		for _, m := range link.FindAllStringSubmatch(read(t, name), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root(t), path.Dir(name), target)); err != nil {
				t.Errorf("%s: the link to %s leads nowhere: %v", name, m[1], err)
			}
		}
	})
}
