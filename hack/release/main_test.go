// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"
)

func TestVersion(t *testing.T) {
	const chart = "apiVersion: v2\nname: weir\nversion: 1.4.0\nappVersion: 1.4.0\n"
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, c := range []struct {
		tags  string
		dirty bool
		want  string
	}{
		{"v1.5.0", false, "1.5.0"},
		{"v1.5.0-rc.2\nv1.5.0-rc.1\nv1.5.0", false, "1.5.0"}, // git's own order
		{"v1.5.0-rc.10\nv1.5.0-rc.9\nv1beta\nv2", false, "1.5.0-rc.10"},
		{"v1.5.0", true, "1.4.0-dev.20260304050607.g0123456789ab.dirty"},
		{"", false, "1.4.0-dev.20260304050607.g0123456789ab"},
	} {
		got := versionOf(c.tags, chart, "0123456789abcdef", at, c.dirty)
		if got != c.want || !versionPattern.MatchString(got) {
			t.Errorf("tags %q, dirty %v: %q, want %q, which must be a version", c.tags, c.dirty, got, c.want)
		}
	}
}

func TestAsk(t *testing.T) {
	for want, ask := range map[string]func(r *release) error{
		"-only has":      func(r *release) error { return r.ask("image,chat", "linux/amd64", nil) },
		"-platforms has": func(r *release) error { return r.ask("image", "linux", nil) },
		"only flags":     func(r *release) error { return r.ask("image", "linux/amd64", []string{"x"}) },
		"add image":      func(r *release) error { r.push = "localhost:1/x"; return r.ask("chart", "linux/amd64", nil) },
	} {
		if err := ask(&release{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	r := &release{version: "1.0+x"}
	if err := r.look(t.Context()); err == nil || !strings.Contains(err.Error(), `version "1.0+x"`) {
		t.Errorf("a version that no tag of an image may have: %v", err)
	}
}

func TestPin(t *testing.T) {
	const values = "image:\n  # Its tag.\n  tag: \"\"\n  # Its digest.\n  digest: \"\"\n\n# Other.\nother:\n  tag: old\n"
	got, err := pin(values, map[string]string{"tag": "1.0", "digest": "sha256:1", "registry": ""})
	want := "image:\n  # Its tag.\n  tag: 1.0\n  # Its digest.\n  digest: sha256:1\n\n# Other.\nother:\n  tag: old\n"
	if err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	for _, bad := range []string{"other:\n  tag: old\n", "image:\n  name: weir\n"} {
		if _, err := pin(bad, map[string]string{"tag": "1.0"}); err == nil {
			t.Errorf("%q was pinned", bad)
		}
	}
}
