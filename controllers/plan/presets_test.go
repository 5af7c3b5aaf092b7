// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// TestPresets: the policies of the documentation are what a person can use.
func TestPresets(t *testing.T) {
	page, err := os.ReadFile("../../docs/kubernetes/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i, part := range strings.Split(string(page), "```") {
		text, is := strings.CutPrefix(part, "yaml\n")
		if !is || i%2 == 0 {
			continue
		}
		p := &v1alpha1.VolumePolicy{}
		if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
			t.Errorf("%v:\n%s", err, text)
			continue
		}
		names = append(names, p.Name)
		if _, err := Resolve(resource.MustParse("10Gi"), &p.Spec, nil); err != nil {
			t.Errorf("policy %s: %v", p.Name, err)
		}
	}
	if got := strings.Join(names, " "); got != "database kept-by-others homes dataset scratch archive" {
		t.Errorf("the page has %s", got)
	}
}
