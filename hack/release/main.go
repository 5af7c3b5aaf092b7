// SPDX-License-Identifier: Apache-2.0

// Command release makes what a user of Weir installs, in a folder:
//
//	weir-VERSION-OS-ARCH.tar.gz   weir, kubectl-weir, completions for shells
//	weir-VERSION.oci.tar          container image for all platforms, an OCI archive
//	weir-VERSION.tgz              Helm chart, which names that image by its digest
//	weir-VERSION-crds.yaml        custom resource definitions
//	weir-VERSION.cdx.json         list of what the programs are built from (CycloneDX)
//	SHA256SUMS                    checksums of these files
//
// Usage, in the source tree:
//
//	release [-o FOLDER] [-only image,...] [-platforms linux/amd64,...] [-version V] [-push PREFIX]
//
// # Rules
//
//   - The same commit and the same Go give the same bytes, in any folder and at any time. What
//     could differ (time, names of folders, settings of the environment) is left out or fixed.
//   - The version is the commit's tag vX.Y.Z, without v. A commit that has none is
//     CHART-dev.TIME.gHASH, with the version in Chart.yaml. At the end is ".dirty" when files
//     differ from the commit.
//   - The root certificates in the image are Mozilla's, from a module that go.mod pins. Those of
//     the machine that builds would be others on each. They are a file and not a part of the
//     program: an administrator replaces a file, and a program outside of a container uses its
//     machine's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var r release
	var only, platforms string
	flag.StringVar(&r.out, "o", "dist", "folder to write to")
	flag.StringVar(&only, "only", strings.Join(allParts, ","), "what to make")
	flag.StringVar(&platforms, "platforms", "linux/amd64,linux/arm64", "OS/ARCH of programs; the image has those of linux")
	flag.StringVar(&r.version, "version", "", "version; empty: the commit's")
	flag.StringVar(&r.push, "push", "", "registry and folder to push the image to, such as localhost:5000/weir; empty: none")
	flag.Parse()
	err := r.ask(only, platforms, flag.Args())
	if err == nil {
		err = r.run(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// Parts of a release.
const (
	partBinaries = "binaries"
	partImage    = "image"
	partChart    = "chart"
	partCRDs     = "crds"
	partSBOM     = "sbom"
)

var allParts = []string{partBinaries, partImage, partChart, partCRDs, partSBOM}

// platform is an operating system and a processor, in Go's words.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// release is what to make, and what was found out about the source tree.
type release struct {
	out       string
	parts     []string
	platforms []platform
	push      string
	version   string

	root   string // source tree
	tools  string // programs of hack/tools
	cache  string // of compressed layers
	commit string
	time   time.Time // of the commit
	temp   string
	made   []string // names of files in out
}

func (r *release) ask(only, platforms string, rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("argument %q: there are only flags", rest[0])
	}
	for part := range strings.SplitSeq(only, ",") {
		if !slices.Contains(allParts, part) {
			return fmt.Errorf("-only has %q: name some of %s", part, strings.Join(allParts, ","))
		}
		r.parts = append(r.parts, part)
	}
	for text := range strings.SplitSeq(platforms, ",") {
		goos, arch, ok := strings.Cut(text, "/")
		if !ok || goos == "" || arch == "" {
			return fmt.Errorf("-platforms has %q: write OS/ARCH, such as linux/amd64", text)
		}
		r.platforms = append(r.platforms, platform{goos, arch})
	}
	if r.push != "" && !r.has(partImage) {
		return fmt.Errorf("-push %q without an image: add image to -only", r.push)
	}
	return nil
}

func (r *release) has(part string) bool { return slices.Contains(r.parts, part) }

func (r *release) run(ctx context.Context) error {
	if err := r.look(ctx); err != nil {
		return err
	}
	return r.write(ctx)
}

// write makes the files, after look.
func (r *release) write(ctx context.Context) (err error) {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	if r.temp, err = os.MkdirTemp("", "weir-release-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.temp)) }()
	return r.produce(ctx)
}

func (r *release) produce(ctx context.Context) error {
	programs, err := r.build(ctx)
	if err != nil {
		return err
	}
	digest := ""
	steps := []struct {
		needed bool
		step   func() error
	}{
		{r.has(partBinaries), func() error { return r.packBinaries(ctx, programs) }},
		// The chart names the image by its digest, so needs it.
		{r.has(partImage) || r.has(partChart), func() (err error) { digest, err = r.packImage(ctx, programs); return err }},
		{r.has(partChart), func() error { return r.packChart(ctx, digest) }},
		{r.has(partCRDs), r.packCRDs},
		{r.has(partSBOM), func() error { return r.packSBOM(programs) }},
	}
	for _, s := range steps {
		if !s.needed {
			continue
		}
		if err := s.step(); err != nil {
			return err
		}
	}
	return r.sums()
}

// file returns the path of a file of the release, and adds the file to the list and the checksums.
func (r *release) file(suffix string) string {
	name := "weir-" + r.version + suffix
	if !slices.Contains(r.made, name) {
		r.made = append(r.made, name)
	}
	return filepath.Join(r.out, name)
}
