// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/weir-storage/weir/hack/image"
)

// build compiles weir for all platforms at once, and returns where the programs are. The one of
// this machine is among them if completions are to be asked of it.
func (r *release) build(ctx context.Context) (map[platform]string, error) {
	programs := map[platform]string{}
	if slices.Equal(r.parts, []string{partCRDs}) {
		return programs, nil
	}
	wanted := slices.Clone(r.platforms)
	if here := (platform{runtime.GOOS, runtime.GOARCH}); r.has(partBinaries) && !slices.Contains(wanted, here) {
		wanted = append(wanted, here)
	}
	errs := make([]error, len(wanted))
	var wg sync.WaitGroup
	for i, p := range wanted {
		programs[p] = filepath.Join(r.temp, p.os+"-"+p.arch, "weir")
		wg.Go(func() { errs[i] = r.compile(ctx, p, filepath.Join(r.temp, p.os+"-"+p.arch, "weir")) })
	}
	wg.Wait()
	return programs, errors.Join(errs...)
}

// compile builds weir so that it needs nothing else, and so that nothing of this machine is in it.
func (r *release) compile(ctx context.Context, p platform, out string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w -X main.version="+r.version, "-o", out, "./cmd/weir")
	// Whatever of the environment changes code is fixed. GOFLAGS could hold anything. An empty
	// variable would not do: then the file counts that `go env -w` writes.
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=-trimpath", "GOEXPERIMENT=,", "GOFIPS140=off", "GOWORK=off")
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.root, os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build weir for %v: %w", p, err)
	}
	return nil
}

// shells are those that weir has completions for, and how their files are called.
var shells = map[string]string{"bash": "weir.bash", "zsh": "_weir", "fish": "weir.fish"}

// kubectlCompletion is what kubectl asks for completions of `kubectl weir`.
const kubectlCompletion = "#!/bin/sh\n# Put it next to kubectl-weir: kubectl runs it to complete words after `kubectl weir`.\n" +
	"exec kubectl-weir __complete \"$@\"\n"

// packBinaries writes one archive for each platform.
func (r *release) packBinaries(ctx context.Context, programs map[platform]string) error {
	licence, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	same := []image.Entry{
		{Name: "kubectl-weir", Link: "weir", Mode: 0o777},
		{Name: "kubectl_complete-weir", Text: []byte(kubectlCompletion), Mode: 0o755},
		{Name: "LICENSE", Text: licence, Mode: 0o644},
	}
	for shell, name := range shells {
		text, err := output(ctx, r.root, programs[platform{runtime.GOOS, runtime.GOARCH}], "completion", shell)
		if err != nil {
			return err
		}
		same = append(same, image.Entry{Name: "completions/" + name, Text: []byte(text + "\n"), Mode: 0o644})
	}
	for _, p := range r.platforms {
		entries := append(slices.Clone(same), image.Entry{Name: "weir", File: programs[p], Mode: 0o755})
		file := r.file("-" + p.os + "-" + p.arch + ".tar.gz")
		if err := writeFile(file, func(w io.Writer) error {
			z := gzip.NewWriter(w)
			return errors.Join(image.WriteTar(z, r.time, entries), z.Close())
		}); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file of the release.
func writeFile(name string, fill func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(f), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// packCRDs writes all custom resource definitions as one file.
func (r *release) packCRDs() error {
	files, err := filepath.Glob(filepath.Join(r.root, "config/crd/*.yaml"))
	if err != nil || len(files) == 0 {
		return errors.Join(fmt.Errorf("config/crd has no files: run make generate"), err)
	}
	slices.Sort(files)
	var all strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(string(text), "---\n") {
			all.WriteString("---\n")
		}
		all.Write(text)
	}
	return os.WriteFile(r.file("-crds.yaml"), []byte(all.String()), 0o644)
}
