// SPDX-License-Identifier: Apache-2.0

// Package image writes container images from files, without a registry, a daemon or a base image: what `ctr images import` and
// every other tool that reads OCI archives takes.
//
// # Format
//
// An archive is a tar file with an OCI image layout (version 1.0.0): oci-layout, index.json and blobs/sha256/*. It holds one image
// of one uncompressed layer, for linux and this machine's architecture.
//
//	index.json ── manifest ─┬─ config (entrypoint, environment, user)
//	   │                    └─ layer (tar)
//	   └ annotations: the image's name
//
// # Rule
//
// The same files, modes and configuration give the same bytes: entries are sorted, belong to root, and have no time.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
)

// Image is what goes into an archive.
type Image struct {
	Name       string            // with its tag: "weir.test/weir:dev"
	Files      map[string]string // path in the image: file on this machine; executable in the image if it is here
	Links      map[string]string // path in the image: target of a symbolic link
	Folders    []string          // empty folders, mode 0777 and sticky, as /tmp is
	Entrypoint []string
	User       string   // "" is root; "65532:65532"
	Env        []string // "NAME=value"
}

// Write writes the archive. Memory is needed for the whole layer.
func (i Image) Write(w io.Writer) error {
	if err := i.check(); err != nil {
		return fmt.Errorf("write image %q: %w", i.Name, err)
	}
	layer, err := i.layer()
	if err == nil {
		err = i.archive(w, layer)
	}
	if err != nil {
		return fmt.Errorf("write image %s: %w", i.Name, err)
	}
	return nil
}

// WriteFile writes the archive to a file, which appears whole or not at all.
func (i Image) WriteFile(name string) error {
	f, err := os.CreateTemp(path.Dir(name), path.Base(name)+".*")
	if err != nil {
		return fmt.Errorf("write image %s: %w", i.Name, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone when all went well
	if err := errors.Join(i.Write(f), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

func (i Image) check() error {
	slash, colon := strings.IndexByte(i.Name, '/'), strings.LastIndexByte(i.Name, ':')
	// Without a host part, runtimes put one of their own before the name, and do not find the image.
	if slash < 1 || !strings.Contains(i.Name[:slash], ".") || colon < slash {
		return errors.New("a name must have a host part, which has a dot, and a tag: example.test/app:1")
	}
	for name := range i.all() {
		if !strings.HasPrefix(name, "/") || path.Clean(name) != name || name == "/" {
			return fmt.Errorf("path %q must begin with a slash and be clean", name)
		}
	}
	if len(i.Entrypoint) == 0 {
		return errors.New("there is no entrypoint: say which file to run")
	}
	return nil
}

// all are the image's entries, without the folders above them.
func (i Image) all() map[string]*tar.Header {
	m := map[string]*tar.Header{}
	for _, d := range i.Folders {
		m[d] = &tar.Header{Typeflag: tar.TypeDir, Mode: 0o1777}
	}
	for name, target := range i.Links {
		m[name] = &tar.Header{Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777}
	}
	for name := range i.Files {
		m[name] = &tar.Header{Typeflag: tar.TypeReg}
	}
	return m
}

// layer is the file system as a tar file.
func (i Image) layer() ([]byte, error) {
	entries := i.all()
	for name := range i.all() {
		for d := path.Dir(name); d != "/"; d = path.Dir(d) {
			if entries[d] == nil {
				entries[d] = &tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}
			}
		}
	}
	names := make([]string, 0, len(entries))
	for name := range entries {
		names = append(names, name)
	}
	slices.Sort(names) // folders come before what is in them
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	for _, name := range names {
		if err := i.add(t, name, entries[name]); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), t.Close()
}

func (i Image) add(t *tar.Writer, name string, h *tar.Header) error {
	h.Name = name[1:]
	if h.Typeflag == tar.TypeDir {
		h.Name += "/"
	}
	if h.Typeflag != tar.TypeReg {
		return t.WriteHeader(h)
	}
	data, err := os.ReadFile(i.Files[name])
	if err != nil {
		return err
	}
	info, err := os.Stat(i.Files[name])
	if err != nil {
		return err
	}
	h.Mode, h.Size = 0o644, int64(len(data))
	if info.Mode()&0o111 != 0 {
		h.Mode = 0o755 // for any user of the image, however strict the umask was here
	}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err = t.Write(data)
	return err
}

// descriptor points to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func describe(mediaType string, blob []byte) descriptor {
	return descriptor{MediaType: mediaType, Digest: digest(blob), Size: len(blob)}
}

func digest(blob []byte) string {
	sum := sha256.Sum256(blob)
	return "sha256:" + hex.EncodeToString(sum[:])
}

const (
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeIndex    = "application/vnd.oci.image.index.v1+json"
)

// archive writes the layout.
func (i Image) archive(w io.Writer, layer []byte) error {
	type process struct {
		Entrypoint []string
		Env        []string `json:",omitempty"`
		User       string   `json:",omitempty"`
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": process{i.Entrypoint, i.Env, i.User},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest,
		"config": describe(typeConfig, config), "layers": []descriptor{describe(typeLayer, layer)},
	})
	if err != nil {
		return err
	}
	pointer := describe(typeManifest, manifest)
	_, tag, _ := strings.Cut(i.Name[strings.LastIndexByte(i.Name, '/'):], ":")
	// The second is containerd's: the specification's has no place for more than a tag.
	pointer.Annotations = map[string]string{"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": i.Name}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []descriptor{pointer}})
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		data []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", index},
		{blob(manifest), manifest}, {blob(config), config}, {blob(layer), layer},
	} {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644, Size: int64(len(f.data))}); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	return t.Close()
}

func blob(data []byte) string { return "blobs/" + strings.Replace(digest(data), ":", "/", 1) }
