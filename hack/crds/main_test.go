// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const definition = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations:
    controller-gen.kubebuilder.io/version: v0.21.0
  name: things.example.org
spec:
  description: such as {{ .Name }}
`

const wanted = first + `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations:
    helm.sh/resource-policy: keep
    controller-gen.kubebuilder.io/version: v0.21.0
  name: things.example.org
spec:
  description: such as {{ "{{" }} .Name }}
`

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	write(t, filepath.Join(from, "things.yaml"), definition)
	write(t, filepath.Join(to, "removed.yaml"), "old")
	for _, step := range []struct {
		check bool
		want  int
	}{{true, 2}, {true, 2}, {false, 2}, {true, 0}, {false, 0}} {
		differing, err := run(from, to, step.check)
		if err != nil || len(differing) != step.want {
			t.Fatalf("run with check %v: %q, %v; want %d files", step.check, differing, err, step.want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(to, "things.yaml")); err != nil || string(text) != wanted {
		t.Errorf("wrote %s, %v; want %s", text, err, wanted)
	}
	if _, err := os.Stat(filepath.Join(to, "removed.yaml")); !os.IsNotExist(err) {
		t.Errorf("a template without a source is still there: %v", err)
	}
}

func TestRunRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := run(dir, dir, true); err == nil || !strings.Contains(err.Error(), "root of the source tree") {
		t.Errorf("an empty folder: %v", err)
	}
	for _, text := range []string{
		"kind: CustomResourceDefinition\nmetadata:\n  name: x\nspec: {}\n",
		"kind: X\nspec:\n  a: b\nmetadata:\n  annotations:\n    a: b\n",
		wanted,
	} {
		if _, err := template([]byte(text)); err == nil {
			t.Errorf("no error for %s", text)
		}
	}
}
