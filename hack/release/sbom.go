// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// packSBOM writes what all programs together are built from, as the Go linker noted it in them.
func (r *release) packSBOM(programs map[platform]string) error {
	parts := map[string]cdx.Component{}
	self := component("github.com/weir-storage/weir", r.version, "")
	self.Type = cdx.ComponentTypeApplication
	for p, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return fmt.Errorf("read what weir for %v is built from: %w", p, err)
		}
		parts["std"] = component("std", strings.TrimPrefix(info.GoVersion, "go"), "")
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			parts[m.Path] = component(m.Path, m.Version, m.Sum)
		}
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &self}
	components, dependsOn := []cdx.Component{}, []string{}
	for _, path := range slices.Sorted(maps.Keys(parts)) {
		components = append(components, parts[path])
		dependsOn = append(dependsOn, parts[path].BOMRef)
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: self.BOMRef, Dependencies: &dependsOn}}
	return writeFile(r.file(".cdx.json"), func(w io.Writer) error {
		return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	})
}

// component is a module. sum is that of go.sum, which is a hash of the module's tree and not of a
// file, so it is a property and not one of CycloneDX's hashes.
func component(path, version, sum string) cdx.Component {
	url := fmt.Sprintf("pkg:golang/%s@%s", path, version)
	c := cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
	if sum != "" {
		c.Properties = &[]cdx.Property{{Name: "weir:go.sum", Value: sum}}
	}
	return c
}
