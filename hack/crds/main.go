// SPDX-License-Identifier: Apache-2.0

// Command crds writes the chart's templates of custom resource definitions,
// charts/weir/templates/crds. It makes them from those that controller-gen wrote to config/crd.
// They are templates because Helm never upgrades what is in a chart's folder crds. Each has the
// annotation helm.sh/resource-policy: keep, since Kubernetes removes all objects of a definition
// with the definition.
//
//	go run ./hack/crds           write them, and remove what has no source
//	go run ./hack/crds -check    only report what differs, with status 1 if something does
//
// Run it in the root of the source tree.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	from  = "config/crd"
	to    = "charts/weir/templates/crds"
	first = "{{/* hack/crds wrote this file from config/crd: change api/v1alpha1, then run make generate. */ -}}\n"
	keep  = "    helm.sh/resource-policy: keep\n"
)

func main() {
	check := flag.Bool("check", false, "change nothing, and tell what differs")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "crds: unknown argument %q: there is only the flag -check\n", flag.Arg(0))
		os.Exit(2)
	}
	differing, err := run(from, to, *check)
	for _, name := range differing {
		fmt.Printf("%s: not what %s gives: run go run ./hack/crds\n", name, from)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "crds:", err)
	}
	if err != nil || *check && len(differing) > 0 {
		os.Exit(1)
	}
}

// run brings the folder to up to date with from, or only returns the files that are not.
func run(from, to string, check bool) (differing []string, err error) {
	sources, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("%s has no definitions: run this in the root of the source tree", from)
	}
	wanted := map[string][]byte{}
	for _, s := range sources {
		text, err := os.ReadFile(s)
		if err != nil {
			return nil, err
		}
		if wanted[filepath.Join(to, filepath.Base(s))], err = template(text); err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
	}
	present, err := filepath.Glob(filepath.Join(to, "*"))
	if err != nil {
		return nil, err
	}
	for _, name := range present {
		if _, ok := wanted[name]; ok {
			continue
		}
		differing = append(differing, name)
		if !check {
			if err := os.Remove(name); err != nil {
				return nil, err
			}
		}
	}
	for name, text := range wanted {
		old, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if bytes.Equal(old, text) {
			continue
		}
		differing = append(differing, name)
		if !check {
			if err := errors.Join(os.MkdirAll(to, 0o755), os.WriteFile(name, text, 0o644)); err != nil {
				return nil, err
			}
		}
	}
	return differing, nil
}

// template makes a definition a template that gives it, with the annotation.
func template(text []byte) ([]byte, error) {
	const before = "\nmetadata:\n  annotations:\n"
	s := strings.TrimPrefix(string(text), "---\n")
	head, tail, found := strings.Cut(s, before)
	if !found || strings.Contains(head, "\nspec:") {
		return nil, errors.New("it does not begin with metadata and annotations, as controller-gen writes them: adapt hack/crds")
	}
	if strings.Contains(s, keep) {
		return nil, errors.New("it has the annotation helm.sh/resource-policy already")
	}
	s = head + before + keep + tail
	return []byte(first + strings.ReplaceAll(s, "{{", `{{ "{{" }}`)), nil
}
