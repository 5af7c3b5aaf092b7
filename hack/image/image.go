// SPDX-License-Identifier: Apache-2.0

// Package image makes container images from files of this machine, without a daemon or a base
// image, as values of go-containerregistry, which pushes them. It reads and writes their archives.
//
// # Rules
//
//   - The same files, modes and configuration give the same bytes. Entries of the layer are
//     sorted, belong to root, and have no time.
//   - An image takes no room: its layer is made of the files each time it is read. They must not
//     change until then; the reader checks the digest.
//   - A compressed layer is a file of a cache, named by the digest of what was compressed.
//
// # Archive
//
// An archive is a tar file with an OCI image layout (image-spec, image-layout.md). Its index.json
// has one entry, an image index, which has one image for each platform.
//
//	index.json ── image index ─┬─ manifest (linux/amd64) ─┬─ config (entry point, user)
//	     │                     └─ manifest (linux/arm64)  └─ layer (tar, gzip)
//	     └ annotations: the image's tag
package image

import (
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Spec is what an image consists of.
type Spec struct {
	Arch       string            // GOARCH of its programs; empty: this machine's
	Files      map[string]string // path in the image: file on this machine; executable there if it is here
	Texts      map[string][]byte // path in the image: content of a file that all may read
	Links      map[string]string // path in the image: target of a symbolic link
	Folders    []string          // empty folders, mode 0777 and sticky, as /tmp is
	Entrypoint []string
	User       string            // numbers, "65532:65532"; empty: root
	Env        []string          // "NAME=value"
	Labels     map[string]string // of the configuration, such as org.opencontainers.image.version
	Created    time.Time         // recorded in the configuration
}

// Build makes an image whose layer is not compressed and is read from the spec's files.
func (s Spec) Build() (v1.Image, error) {
	layer, err := s.layer()
	if err != nil {
		return nil, fmt.Errorf("make image: %w", err)
	}
	return s.image(layer)
}

// BuildCompressed makes an image whose layer is gzipped, and kept in the folder cache. now is the
// time of use, by which the cache forgets.
func (s Spec) BuildCompressed(cache string, now time.Time) (v1.Image, error) {
	plain, err := s.layer()
	if err != nil {
		return nil, fmt.Errorf("make image: %w", err)
	}
	layer, err := compress(plain, cache, now)
	if err != nil {
		return nil, fmt.Errorf("make image: %w", err)
	}
	return s.image(layer)
}

func (s Spec) layer() (*plainLayer, error) {
	if len(s.Entrypoint) == 0 {
		return nil, errors.New("there is no entry point: say which file to run")
	}
	entries, err := s.entries()
	if err != nil {
		return nil, err
	}
	return newPlainLayer(withFolders(entries))
}

// entries are what the spec names, without the folders above it.
func (s Spec) entries() ([]Entry, error) {
	var all []Entry
	for _, name := range s.Folders {
		all = append(all, Entry{Name: name, Mode: 0o1777, Folder: true})
	}
	for name, target := range s.Links {
		all = append(all, Entry{Name: name, Mode: 0o777, Link: target})
	}
	for name, text := range s.Texts {
		all = append(all, Entry{Name: name, Mode: 0o644, Text: text})
	}
	for name, file := range s.Files {
		info, err := os.Stat(file)
		if err != nil {
			return nil, err
		}
		mode := int64(0o644)
		if info.Mode()&0o111 != 0 {
			mode = 0o755 // for any user of the image, however strict the umask was here
		}
		all = append(all, Entry{Name: name, Mode: mode, File: file})
	}
	seen := map[string]bool{}
	for i, e := range all {
		if e.Name == "" || e.Name == "/" || path.Clean(e.Name) != e.Name || e.Name[0] != '/' {
			return nil, fmt.Errorf("path %q in the image must begin with a slash and be clean", e.Name)
		}
		if seen[e.Name] {
			return nil, fmt.Errorf("path %q in the image is there twice: name it once", e.Name)
		}
		seen[e.Name] = true
		all[i].Name = e.Name[1:]
	}
	return all, nil
}

func (s Spec) image(layer v1.Layer) (v1.Image, error) {
	base := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	base = mutate.ConfigMediaType(base, types.OCIConfigJSON)
	img, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: s.Created}, CreatedBy: "hack/image"},
	})
	if err != nil {
		return nil, fmt.Errorf("make image: %w", err)
	}
	old, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("make image: %w", err)
	}
	c := old.DeepCopy()
	c.OS, c.Architecture, c.Created = "linux", s.Arch, v1.Time{Time: s.Created}
	if c.Architecture == "" {
		c.Architecture = runtime.GOARCH
	}
	c.Config = v1.Config{Entrypoint: s.Entrypoint, Env: s.Env, User: s.User, Labels: s.Labels}
	if img, err = mutate.ConfigFile(img, c); err != nil {
		return nil, fmt.Errorf("make image: %w", err)
	}
	return img, nil
}

// Index joins images of one program for several platforms.
func Index(images ...v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, img := range images {
		config, err := img.ConfigFile()
		if err != nil {
			return nil, fmt.Errorf("make image index: %w", err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: config.Platform()},
		})
	}
	return index, nil
}
