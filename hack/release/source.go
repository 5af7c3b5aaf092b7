// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// versionPattern is what charts and tags of images may both be called: semantic, without "+".
var versionPattern = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

// look finds the source tree, and its version and time.
func (r *release) look(ctx context.Context) (err error) {
	module, err := output(ctx, "", "go", "env", "GOMOD")
	if err != nil {
		return err
	}
	if r.root = filepath.Dir(module); filepath.Base(module) != "go.mod" {
		return fmt.Errorf("this folder is in no module: run it in Weir's source tree")
	}
	if r.tools, err = output(ctx, r.root, "hack/tools/build", "-p"); err != nil {
		return err
	}
	r.cache = filepath.Join(filepath.Dir(r.tools), "layers")
	git := func(args ...string) (string, error) {
		// The tree's owner may be another than who runs this, as with sudo.
		return output(ctx, r.root, "git", append([]string{"-c", "safe.directory=" + r.root}, args...)...)
	}
	if r.commit, err = git("rev-parse", "--verify", "HEAD"); err != nil {
		return fmt.Errorf("%w: a release is made of a commit: run it in a clone", err)
	}
	at, err := git("show", "-s", "--format=%cI", "HEAD")
	if err != nil {
		return err
	}
	if r.time, err = time.Parse(time.RFC3339, at); err != nil {
		return err
	}
	r.time = r.time.UTC()
	if r.version == "" {
		tags, err := git("tag", "--points-at", "HEAD", "v[0-9]*")
		if err != nil {
			return err
		}
		changed, err := git("status", "--porcelain")
		if err != nil {
			return err
		}
		chart, err := os.ReadFile(filepath.Join(r.root, "charts/weir/Chart.yaml"))
		if err != nil {
			return err
		}
		r.version = versionOf(tags, string(chart), r.commit, r.time, changed != "")
	}
	if !versionPattern.MatchString(r.version) {
		return fmt.Errorf("version %q: it must be like 1.2.3 or 1.2.3-rc.1", r.version)
	}
	return nil
}

// versionOf is the version of a commit. tags are its tags, in any order: the highest that is a
// version counts, and a release is higher than its candidates. chart is Chart.yaml.
func versionOf(tags, chart, commit string, at time.Time, dirty bool) string {
	highest := ""
	for _, tag := range strings.Fields(tags) {
		if versionPattern.MatchString(strings.TrimPrefix(tag, "v")) && semver.Compare(tag, highest) > 0 {
			highest = tag
		}
	}
	if highest != "" && !dirty {
		return strings.TrimPrefix(highest, "v")
	}
	base := "0.0.0"
	if m := regexp.MustCompile(`(?m)^version: *"?([^\s"]+)`).FindStringSubmatch(chart); m != nil {
		base = m[1]
	}
	v := fmt.Sprintf("%s-dev.%s.g%.12s", base, at.Format("20060102150405"), commit)
	if dirty {
		v += ".dirty"
	}
	return v
}

// output runs a program and returns what it printed, without the last newline. The error has what
// it complained about.
func output(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var complaint bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &complaint
	if strings.Contains(program, "/") && !filepath.IsAbs(program) {
		cmd.Path = filepath.Join(dir, program)
	}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
