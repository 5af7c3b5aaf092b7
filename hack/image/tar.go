// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// Entry is a file, a folder or a symbolic link of a tar file. It belongs to root.
type Entry struct {
	Name string // without a slash at the begin
	Mode int64  // permissions, with the bits of tar: 0o1777 is sticky

	Folder bool   // a folder, if true
	Link   string // a symbolic link to it, unless empty
	Text   []byte // the file's content, if File is empty
	File   string // file of this machine with the content
}

// WriteTar writes the entries as a tar file, sorted by name, all with the same time. The same
// names, modes and contents give the same bytes. Files are copied as they are read: memory does
// not grow with them.
func WriteTar(w io.Writer, when time.Time, entries []Entry) error {
	sorted := slices.Clone(entries)
	slices.SortFunc(sorted, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	t := tar.NewWriter(w)
	for _, e := range sorted {
		if err := e.write(t, when); err != nil {
			return fmt.Errorf("pack %s: %w", e.Name, err)
		}
	}
	return t.Close()
}

func (e Entry) write(t *tar.Writer, when time.Time) error {
	h := &tar.Header{Name: e.Name, Mode: e.Mode, ModTime: when, Format: tar.FormatPAX}
	switch {
	case e.Folder:
		h.Typeflag, h.Name = tar.TypeDir, e.Name+"/"
		return t.WriteHeader(h)
	case e.Link != "":
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Link
		return t.WriteHeader(h)
	case e.File == "":
		h.Typeflag, h.Size = tar.TypeReg, int64(len(e.Text))
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := t.Write(e.Text)
		return err
	}
	f, err := os.Open(e.File)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(t, f)
	return err
}

// withFolders adds the folders above the entries, which anybody may read.
func withFolders(entries []Entry) []Entry {
	there := map[string]bool{}
	for _, e := range entries {
		there[e.Name] = true
	}
	all := slices.Clone(entries)
	for _, e := range entries {
		for d := path.Dir(e.Name); d != "." && !there[d]; d = path.Dir(d) {
			there[d] = true
			all = append(all, Entry{Name: d, Mode: 0o755, Folder: true})
		}
	}
	return all
}

// stream gives what write writes, while it writes.
func stream(write func(io.Writer) error) io.ReadCloser {
	r, w := io.Pipe()
	go func() { w.CloseWithError(write(w)) }() // ends when r is read or closed
	return r
}

// create writes a file that appears whole or not at all.
func create(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(path.Dir(name), "."+path.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone when all went well
	if err := errors.Join(write(f), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
