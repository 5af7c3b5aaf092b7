// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"crypto/sha256"
	_ "embed" // source of what machines are preloaded with
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ptraceSource is the shared object that lets User-Mode Linux run on processors with a large
// register state. Its comment says why.
//
//go:embed xstate/ptrace.c
var ptraceSource []byte

// cacheDir is the folder that hack/tools/build keeps its programs in.
func cacheDir() (string, error) {
	if dir := os.Getenv("WEIR_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w: set WEIR_CACHE", err)
	}
	return filepath.Join(dir, "weir"), nil
}

// kernel is the User-Mode Linux of machines.
type kernel struct {
	path    string
	modules string // folder with one of the kernel's release in it
	preload string // shared objects for its process: what ptraceLibrary returns
}

// findKernel returns what hack/fetch-guest-kernel fetched, or else Debian's package
// user-mode-linux.
func findKernel(ctx context.Context) (kernel, error) {
	preload, err := ptraceLibrary(ctx)
	if err != nil {
		return kernel{}, err
	}
	dir, err := cacheDir()
	if err != nil {
		return kernel{}, err
	}
	fetched := filepath.Join(dir, "guest", "linux.uml")
	if _, err := os.Stat(fetched); err == nil {
		return kernel{fetched, filepath.Join(dir, "guest", "modules"), preload}, nil
	}
	return system(preload), nil
}

// system is the kernel of Debian's package user-mode-linux.
func system(preload string) kernel {
	return kernel{"/usr/bin/linux.uml", "/usr/lib/uml/modules", preload}
}

// ptraceLibrary returns the path of the compiled xstate/ptrace.c. It compiles it unless the cache
// has it for the same source. Several programs may call it at once.
func ptraceLibrary(ctx context.Context) (string, error) {
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "stage", fmt.Sprintf("ptrace-%x.so", sha256.Sum256(ptraceSource)))
	if strings.ContainsAny(path, " :") {
		return "", fmt.Errorf("cache folder %q: the dynamic linker takes no path with a space or a colon: set WEIR_CACHE", dir)
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(path), ".compile-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	source, library := filepath.Join(tmp, "ptrace.c"), filepath.Join(tmp, "ptrace.so")
	if err := os.WriteFile(source, ptraceSource, 0o644); err != nil {
		return "", err
	}
	if err := compileC(ctx, library, source, "-shared", "-fPIC"); err != nil {
		return "", err
	}
	return path, os.Rename(library, path)
}

// compileC compiles and links one C file.
func compileC(ctx context.Context, out, source string, flags ...string) error {
	args := append([]string{"-O2", "-Wall", "-Wextra", "-Werror", "-o", out, source}, flags...)
	_, err := run(ctx, "", "gcc", args...)
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("compile %s: there is no gcc: run hack/install-deps", filepath.Base(source))
	}
	if err != nil {
		return fmt.Errorf("compile %s: %w", filepath.Base(source), err)
	}
	return nil
}
