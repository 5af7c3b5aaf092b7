// SPDX-License-Identifier: Apache-2.0

// Package mount has the kernel's mounts: the list of them, and the calls that change it. It asks
// the kernel itself: the image of a static binary has no mount.nfs.
package mount

import (
	"fmt"
	"slices"
	"strings"
)

// Point is a mount: one line of mountinfo (proc(5)).
type Point struct {
	Path    string
	Device  string // major:minor: equal for all mounts of one file system
	Root    string // the directory of the file system that is mounted here
	Source  string // for NFS ADDRESS:/PATH
	FsType  string
	Options []string // of this mount, not of the file system
}

// ReadOnly reports whether nothing can be written through this mount, whatever the file system
// allows.
func (p Point) ReadOnly() bool { return slices.Contains(p.Options, "ro") }

// String describes a mount for the error that something else should be there.
func (p Point) String() string {
	return fmt.Sprintf("%s %s (%s) at %s", p.FsType, p.Source, strings.Join(p.Options, ","), p.Path)
}

// How is a way to unmount.
type How string

// Ways to unmount, mildest first.
const (
	Normal How = "normal" // fails while the mount is in use; writes back what is dirty, and waits
	Force  How = "forced" // makes every call fail that is under way in the file system
	Lazy   How = "lazy"   // takes the mount out of sight at once; it ends when nobody uses it
)

// At finds the mount on top at a path. points are in the order of mountinfo.
func At(points []Point, path string) (Point, bool) {
	for _, p := range slices.Backward(points) {
		if p.Path == path {
			return p, true
		}
	}
	return Point{}, false
}

// ShownElsewhere reports whether the file system of p is mounted at other paths too.
func ShownElsewhere(points []Point, p Point) bool {
	return slices.ContainsFunc(points, func(o Point) bool { return o.Device == p.Device && o.Path != p.Path })
}

// parseMountinfo reads the format of /proc/PID/mountinfo. It skips a line that it does not
// understand: the line is about something else, and must not keep a node from unmounting.
func parseMountinfo(text string) []Point {
	var all []Point
	for line := range strings.Lines(text) {
		// 36 35 0:52 / /mnt rw,noexec shared:1 - nfs4 10.0.0.1:/v rw,vers=4.2
		before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		f, g := strings.Split(before, " "), strings.Split(after, " ")
		if !ok || len(f) < 6 || len(g) < 2 {
			continue
		}
		all = append(all, Point{
			Path: unescape(f[4]), Device: f[2], Root: unescape(f[3]),
			Source: unescape(g[1]), FsType: g[0], Options: strings.Split(f[5], ","),
		})
	}
	return all
}

// unescape turns octal numbers back into the blanks, backslashes and # for which the kernel writes
// them.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace(s)
}
