// SPDX-License-Identifier: Apache-2.0

package spec_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"sigs.k8s.io/yaml"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/spec"
)

// Commands of testdata: parse reads a manifest and prints it with defaults, or what is wrong; sites
// sets the known sites, one "name organization [region [lends]]" a line; place parses a manifest
// (spec only) and prints the chosen sites.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.Contains(path, "/fuzz/") {
			return // seeds of fuzz targets
		}
		var sites []federation.Site
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "parse":
				m, err := spec.Parse([]byte(d.Input))
				if err != nil {
					return err.Error() + "\n"
				}
				out, err := yaml.Marshal(m.Spec)
				if err != nil {
					t.Fatal(err)
				}
				return m.Metadata.Name + "\n" + string(out)
			case "sites":
				sites = nil
				for line := range strings.Lines(d.Input) {
					f := strings.Fields(line)
					s := federation.Site{Name: f[0], Organization: f[1], Lends: []string{federation.LendsToAll}}
					if len(f) > 2 && f[2] != "-" {
						s.Region = f[2]
					}
					if len(f) > 3 { // whom it lends to
						s.Lends = strings.Split(f[3], ",")
					}
					sites = append(sites, s)
				}
				return "ok\n"
			case "place":
				m, err := spec.Parse([]byte("apiVersion: storage.weir.dev/v1alpha1\nkind: GeoVolume\nmetadata: {name: v}\nspec:\n  " +
					"size: 1Gi\n  " + strings.ReplaceAll(d.Input, "\n", "\n  ")))
				if err != nil {
					return err.Error() + "\n"
				}
				got, err := spec.Place(m, "owner", sites)
				if err != nil {
					return err.Error() + "\n"
				}
				for i, name := range got {
					at := slices.IndexFunc(sites, func(s federation.Site) bool { return s.Name == name })
					if spec.Blind(m.Spec.Replication, "owner", name, sites[at].Organization) {
						got[i] += "(blind)"
					}
				}
				return fmt.Sprintln(strings.Join(got, " "))
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
	})
}

// What Parse gives is what Parse reads: a manifest written by a tool means the same.
func TestRoundTrip(t *testing.T) {
	in := "apiVersion: storage.weir.dev/v1alpha1\nkind: GeoVolume\nmetadata: {name: v, labels: {a: b}}\nspec: {size: 1500M, durability: " +
		"{acknowledge: Sites}}\n"
	m, err := spec.Parse([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	again, err := spec.Parse(out)
	if err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	if fmt.Sprint(again) != fmt.Sprint(m) {
		t.Fatalf("%+v became %+v", m, again)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("apiVersion: storage.weir.dev/v1alpha1\nkind: GeoVolume\nmetadata: {name: v}\nspec: {size: 1Gi}\n"))
	f.Add([]byte("spec: {replication: {sites: {required: [null, 1]}}}"))
	f.Add([]byte("[]"))
	f.Fuzz(func(_ *testing.T, p []byte) { _, _ = spec.Parse(p) })
}
