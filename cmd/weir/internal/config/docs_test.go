// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/spec"
)

// example is the first YAML in a page of the reference.
func example(t *testing.T, page string) (yaml, text string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "reference", page))
	if err != nil {
		t.Fatal(err)
	}
	text = string(b)
	_, yaml, _ = strings.Cut(text, "```yaml\n")
	yaml, _, ok := strings.Cut(yaml, "```\n")
	if !ok {
		t.Fatalf("%s has no example", page)
	}
	return yaml, text
}

// The reference's examples are accepted, and show every field that there is.
func TestReference(t *testing.T) {
	yaml, page := example(t, "gateway-config.md")
	if _, err := load(t, yaml); err != nil {
		t.Error(err)
	}
	named(t, page, "", reflect.TypeFor[Config]())
	yaml, page = example(t, "volume.md")
	if _, err := spec.Parse([]byte(yaml)); err != nil {
		t.Error(err)
	}
	named(t, page, "", reflect.TypeFor[federation.VolumeSpec]())
}

func named(t *testing.T, page, path string, of reflect.Type) {
	t.Helper()
	for f := range of.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !strings.Contains(page, name) {
			t.Errorf("field %s is not in the reference", join(path, name))
		}
		if f.Type.Kind() == reflect.Struct {
			named(t, page, join(path, name), f.Type)
		}
	}
}
