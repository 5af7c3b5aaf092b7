// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// tagAnnotation is where the OCI layout has an image's tag.
const tagAnnotation = "org.opencontainers.image.ref.name"

// WriteArchive writes the image index to a file, which appears whole or not at all.
func WriteArchive(file, tag string, index v1.ImageIndex) error {
	if err := writeArchive(file, tag, index); err != nil {
		return fmt.Errorf("write image archive %s: %w", file, err)
	}
	return nil
}

func writeArchive(file, tag string, index v1.ImageIndex) error {
	dir, err := os.MkdirTemp(filepath.Dir(file), ".layout-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a folder that is left does no harm
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	tagged := layout.WithAnnotations(map[string]string{tagAnnotation: tag})
	if err := l.AppendIndex(index, tagged); err != nil {
		return err
	}
	var entries []Entry
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		entries = append(entries, Entry{Name: filepath.ToSlash(rel), Mode: 0o644, File: name})
		return err
	})
	if err != nil {
		return err
	}
	return create(file, func(w io.Writer) error { return WriteTar(w, time.Unix(0, 0), entries) })
}

// Archive is an open archive. Its blobs are read where they are in it. Its methods may be called
// from several goroutines.
type Archive struct {
	Tag string // of the image

	f         *os.File
	top       v1.Hash
	blobs     map[v1.Hash]section
	manifests []Manifest
}

type section struct{ begin, size int64 }

// Manifest is a manifest or an image index, as the registry gets it.
type Manifest struct {
	Digest v1.Hash
	Type   types.MediaType
	Text   []byte
}

// RawManifest is the text; with MediaType it makes m something that package remote can put.
func (m Manifest) RawManifest() ([]byte, error) { return m.Text, nil }

// MediaType is the type.
func (m Manifest) MediaType() (types.MediaType, error) { return m.Type, nil }

// OpenArchive opens an archive of one image, such as WriteArchive writes. The caller closes it.
func OpenArchive(file string) (*Archive, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("open image archive: %w", err)
	}
	a := &Archive{f: f, blobs: map[v1.Hash]section{}}
	if err := a.read(); err != nil {
		_ = f.Close() // it was only read
		return nil, fmt.Errorf("open image archive %s: %w", file, err)
	}
	return a, nil
}

func (a *Archive) read() error {
	var index v1.IndexManifest
	r := tar.NewReader(a.f)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		at, err := a.f.Seek(0, io.SeekCurrent) // a reader of tar files does not read ahead
		if err != nil {
			return err
		}
		switch dir, base := path.Split(h.Name); {
		case h.Name == "index.json":
			if err := json.NewDecoder(r).Decode(&index); err != nil {
				return fmt.Errorf("index.json: %w", err)
			}
		case dir == "blobs/sha256/":
			a.blobs[v1.Hash{Algorithm: "sha256", Hex: base}] = section{at, h.Size}
		}
	}
	if len(index.Manifests) != 1 {
		return fmt.Errorf("index.json names %d images: it must be one", len(index.Manifests))
	}
	a.top, a.Tag = index.Manifests[0].Digest, index.Manifests[0].Annotations[tagAnnotation]
	return a.follow(index.Manifests[0])
}

// follow reads a manifest and those that it names, which come first in the list: a registry takes
// an index only after what is in it.
func (a *Archive) follow(d v1.Descriptor) error {
	blob, ok := a.Blob(d.Digest)
	if !ok {
		return fmt.Errorf("there is no blob %s", d.Digest)
	}
	text, err := io.ReadAll(blob)
	if err != nil {
		return err
	}
	if d.MediaType.IsIndex() {
		var index v1.IndexManifest
		if err := json.Unmarshal(text, &index); err != nil {
			return fmt.Errorf("%s: %w", d.Digest, err)
		}
		for _, m := range index.Manifests {
			if err := a.follow(m); err != nil {
				return err
			}
		}
	}
	a.manifests = append(a.manifests, Manifest{d.Digest, d.MediaType, text})
	return nil
}

// Close closes the file. Nothing can be read afterwards.
func (a *Archive) Close() error { return a.f.Close() }

// Digest is that of the image, by which a registry and a chart name it.
func (a *Archive) Digest() v1.Hash { return a.top }

// Manifests are the image's manifests in the order in which a registry takes them; the last one is
// the image's own.
func (a *Archive) Manifests() []Manifest { return a.manifests }

// Blob opens a blob. There are those that the manifests name, and the manifests.
func (a *Archive) Blob(h v1.Hash) (r *io.SectionReader, ok bool) {
	s, ok := a.blobs[h]
	if !ok {
		return nil, false
	}
	return io.NewSectionReader(a.f, s.begin, s.size), true
}

// Blobs are the digests of all blobs, in no order.
func (a *Archive) Blobs() []v1.Hash {
	var all []v1.Hash
	for h := range a.blobs {
		all = append(all, h)
	}
	return all
}
