// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// groupPrefix begins the name of a site's pod cgroup. The name of the site's network namespace
// follows it.
const groupPrefix = "weir-e2e-"

// groupFolders are the folders of a cgroup: one, or one in each hierarchy of version 1.
func groupFolders(name string) []string {
	one, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", name)) // patterns are well-formed
	many, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", name))
	return slices.DeleteFunc(append(one, many...), func(dir string) bool {
		info, err := os.Lstat(dir) // cpuacct may be a link to cpu,cpuacct
		return err != nil || !info.IsDir()
	})
}

// removeGroups removes a cgroup and those below it. Its processes were killed, and may take a
// moment to exit.
func removeGroups(name string) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		var errs []error
		for _, top := range groupFolders(name) {
			errs = append(errs, removeGroup(top))
		}
		err := errors.Join(errs...)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func removeGroup(top string) error {
	var dirs []string
	_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error { // what vanishes meanwhile is fine
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	slices.Reverse(dirs) // what is inside comes first
	for _, dir := range dirs {
		if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// sweepGroups removes the cgroups of stages that are gone, which are those without namespaces.
func sweepGroups() error {
	seen := map[string]bool{}
	var errs []error
	for _, dir := range groupFolders(groupPrefix + "*") {
		name := filepath.Base(dir)
		if _, err := os.Stat(filepath.Join("/run/netns", strings.TrimPrefix(name, groupPrefix))); seen[name] || err == nil {
			continue
		}
		seen[name] = true
		errs = append(errs, removeGroups(name))
	}
	return errors.Join(errs...)
}
