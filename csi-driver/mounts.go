// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"fmt"
	"slices"
	"strings"
)

// MountPoint is a line of mountinfo (proc(5)).
type MountPoint struct {
	Path    string
	Device  string // major:minor: equal for all mounts of one file system
	Root    string // the directory of the file system that is mounted here
	Source  string // for NFS ADDRESS:/PATH
	FsType  string
	Options []string // of this mount, not of the file system
}

// ReadOnly tells whether nothing can be written through this mount, whatever the file system allows.
func (m MountPoint) ReadOnly() bool { return slices.Contains(m.Options, "ro") }

// Mounter are the kernel calls of a node. Any but Mounts may hang while a gateway is away. Paths are absolute and clean.
type Mounter interface {
	// Mounts lists what is mounted, in the order of mountinfo: of two at the same path the last is on top. It never hangs.
	Mounts() ([]MountPoint, error)
	// Mount mounts a new file system of NFS 4 at a directory, with options that any file system has, and those of NFS.
	Mount(source, path string, vfs []string, data string) error
	// Bind mounts the directory at from at another path; with readOnly it changes the bind mount at path instead (from is ignored): nothing can be written
	// through it any more. options are those that the mount has and shall keep.
	Bind(from, path string, readOnly bool, options []string) error
	// Unmount removes the mount on top at path; how it does is one of the constants.
	Unmount(path string, how How) error
	// Directory makes a directory, or removes it if it is empty. Neither looks below a mount. What is done already is no error.
	Directory(path string, there bool) error
}

// How to unmount.
type How string

// Ways to unmount, mildest first.
const (
	Normal How = "normal" // fails while it is used; waits for what is to be written
	Force  How = "forced" // makes all that is under way in the file system fail
	Lazy   How = "lazy"   // out of sight at once, gone when nobody uses it
)

// at is what is mounted at a path, on top.
func at(mounts []MountPoint, path string) (MountPoint, bool) {
	for _, m := range slices.Backward(mounts) {
		if m.Path == path {
			return m, true
		}
	}
	return MountPoint{}, false
}

// shownElsewhere tells whether the file system is mounted at other paths too.
func shownElsewhere(mounts []MountPoint, m MountPoint) bool {
	return slices.ContainsFunc(mounts, func(o MountPoint) bool { return o.Device == m.Device && o.Path != m.Path })
}

// parseMountinfo reads the format of /proc/PID/mountinfo. A line that is not understood is left out: it is about something else, and must not stop a
// node from unmounting.
func parseMountinfo(text string) []MountPoint {
	var all []MountPoint
	for line := range strings.Lines(text) {
		// 36 35 0:52 / /mnt rw,noexec shared:1 - nfs4 10.0.0.1:/v rw,vers=4.2
		before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		f, g := strings.Split(before, " "), strings.Split(after, " ")
		if !ok || len(f) < 6 || len(g) < 2 {
			continue
		}
		all = append(all, MountPoint{
			Path: unescape(f[4]), Device: f[2], Root: unescape(f[3]), Source: unescape(g[1]), FsType: g[0], Options: strings.Split(f[5], ","),
		})
	}
	return all
}

// unescape undoes what the kernel does to blanks and backslashes: an octal number.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace(s)
}

// conflict describes what is mounted where something else should be.
func (m MountPoint) String() string {
	return fmt.Sprintf("%s %s (%s) at %s", m.FsType, m.Source, strings.Join(m.Options, ","), m.Path)
}
