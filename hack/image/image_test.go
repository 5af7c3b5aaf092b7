// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func example(t *testing.T) Spec {
	t.Helper()
	dir := t.TempDir()
	program, text := filepath.Join(dir, "program"), filepath.Join(dir, "text")
	if err := errors.Join(os.WriteFile(program, []byte("#!/bin/true"), 0o700), os.WriteFile(text, []byte("words"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return Spec{
		Arch:       "arm64",
		Files:      map[string]string{"/bin/program": program, "/etc/app/text": text},
		Texts:      map[string][]byte{"/etc/app/more": []byte("more words")},
		Links:      map[string]string{"/bin/other": "program"},
		Folders:    []string{"/tmp"},
		Entrypoint: []string{"/bin/program", "run"},
		User:       "65532:65532",
		Env:        []string{"PATH=/bin"},
	}
}

// unpack reads a tar file: contents of files, targets of links, "" for folders.
func unpack(t *testing.T, r io.Reader) (contents map[string]string, modes map[string]int64) {
	t.Helper()
	contents, modes = map[string]string{}, map[string]int64{}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return contents, modes
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(time.Unix(0, 0)) || h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s has time %v and owner %d:%d", h.Name, h.ModTime, h.Uid, h.Gid)
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		contents[h.Name], modes[h.Name] = string(b)+h.Linkname, h.Mode
	}
}

// TestImage checks both forms of an image: digests with the library's validator, and contents.
func TestImage(t *testing.T) {
	s := example(t)
	plain, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(t.TempDir(), "layers")
	packed, err := s.BuildCompressed(cache, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, img := range map[string]v1.Image{"plain": plain, "compressed": packed} {
		// Of layers the validator only knows compressed ones.
		if err := validate.Image(img, map[bool][]validate.Option{true: {validate.Fast}}[name == "plain"]...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		c := config.Config
		if config.OS != "linux" || config.Architecture != "arm64" || len(c.Entrypoint) != 2 || c.User != s.User || len(c.Env) != 1 {
			t.Errorf("%s: configuration %+v", name, config)
		}
		layers, err := img.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatalf("%s: layers %v, %v", name, layers, err)
		}
		blob, err := layers[0].Compressed()
		if err != nil {
			t.Fatal(err)
		}
		digest, size, err := v1.SHA256(blob)
		manifest, merr := img.Manifest()
		if err != nil || merr != nil {
			t.Fatal(err, merr)
		}
		if said := manifest.Layers[0]; said.Digest != digest || said.Size != size {
			t.Errorf("%s: the layer has digest %v and %d bytes, the manifest says %+v", name, digest, size, said)
		}
		r, err := layers[0].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		files, modes := unpack(t, r)
		want := map[string]string{"bin/": "", "bin/program": "#!/bin/true", "bin/other": "program", "etc/": "", "etc/app/": "",
			"etc/app/text": "words", "etc/app/more": "more words", "tmp/": ""}
		for file, text := range want {
			if got, ok := files[file]; !ok || got != text {
				t.Errorf("%s: %s has %q (there: %v), want %q", name, file, got, ok, text)
			}
		}
		if len(files) != len(want) || modes["bin/program"] != 0o755 || modes["etc/app/text"] != 0o644 || modes["tmp/"] != 0o1777 {
			t.Errorf("%s: files %v, modes %v", name, files, modes)
		}
	}
}

// archive writes an archive of the image and returns its bytes.
func archive(t *testing.T, s Spec, cache string, now time.Time) (file string, data []byte) {
	t.Helper()
	img, err := s.BuildCompressed(cache, now)
	if err != nil {
		t.Fatal(err)
	}
	index, err := Index(img)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "out.tar")
	if err := WriteArchive(file, "1.0", index); err != nil {
		t.Fatal(err)
	}
	if data, err = os.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	return file, data
}

// TestSameBytes changes what must not matter: times of files, and whether the cache has the layer.
func TestSameBytes(t *testing.T) {
	s, cache, now := example(t), t.TempDir(), time.Now()
	_, one := archive(t, s, cache, now)
	if err := os.Chtimes(s.Files["/bin/program"], now, now.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	_, two := archive(t, s, cache, now)
	_, three := archive(t, s, t.TempDir(), now)
	if !bytes.Equal(one, two) || !bytes.Equal(one, three) {
		t.Error("archives of the same files differ")
	}
	s.Texts["/etc/app/more"] = []byte("other words")
	if _, four := archive(t, s, cache, now); bytes.Equal(one, four) {
		t.Error("archives of different files are the same")
	}
}

// TestCache checks that what is used stays, what is not goes, and what is damaged is not believed.
func TestCache(t *testing.T) {
	s, cache, now := example(t), t.TempDir(), time.Now()
	archive(t, s, cache, now)
	first, err := filepath.Glob(filepath.Join(cache, "*.tar.gz"))
	if err != nil || len(first) != 1 {
		t.Fatalf("cache has %v, %v", first, err)
	}
	other := example(t)
	other.User = "1:1" // the same layer
	archive(t, other, cache, now.Add(keep/2))
	other.Texts["/etc/app/more"] = []byte("other words")
	archive(t, other, cache, now.Add(keep))
	if all, _ := filepath.Glob(filepath.Join(cache, "*")); len(all) != 2 {
		t.Errorf("cache has %v, want two layers", all)
	}
	archive(t, other, cache, now.Add(2*keep))
	all, _ := filepath.Glob(filepath.Join(cache, "*"))
	if len(all) != 1 || all[0] == first[0] {
		t.Errorf("cache has %v, want the layer that was used", all)
	}
	data, err := os.ReadFile(first[0])
	if err == nil {
		t.Fatalf("the first layer is there: %d bytes", len(data))
	}
	if data, err = os.ReadFile(all[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(all[0], data[:len(data)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := other.BuildCompressed(cache, now); err == nil {
		t.Error("a damaged layer of the cache was used")
	}
}

// TestArchive reads back what was written, as a program that pushes it does.
func TestArchive(t *testing.T) {
	file, _ := archive(t, example(t), t.TempDir(), time.Now())
	a, err := OpenArchive(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	if m := a.Manifests(); a.Tag != "1.0" || len(m) != 2 || m[1].Digest != a.Digest() || !m[1].Type.IsIndex() || !m[0].Type.IsImage() {
		t.Errorf("tag %q, manifests %+v", a.Tag, m)
	}
	if len(a.Blobs()) != 4 {
		t.Errorf("blobs %v, want index, manifest, configuration and layer", a.Blobs())
	}
	for _, h := range a.Blobs() {
		r, ok := a.Blob(h)
		if !ok {
			t.Fatalf("no blob %v", h)
		}
		if got, _, err := v1.SHA256(r); err != nil || got != h {
			t.Errorf("blob %v has digest %v, %v", h, got, err)
		}
	}
	if _, ok := a.Blob(v1.Hash{Algorithm: "sha256", Hex: "00"}); ok {
		t.Error("there is a blob that nobody wrote")
	}
	if err := os.WriteFile(file, []byte("no archive"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenArchive(file); err == nil {
		t.Error("a file that is no archive was opened")
	}
}

func TestRefused(t *testing.T) {
	for name, spoil := range map[string]func(s *Spec){
		"no entry point":  func(s *Spec) { s.Entrypoint = nil },
		"relative path":   func(s *Spec) { s.Files["bin/x"] = s.Files["/bin/program"] },
		"path not clean":  func(s *Spec) { s.Links["/bin/../x"] = "y" },
		"the root":        func(s *Spec) { s.Folders = append(s.Folders, "/") },
		"empty path":      func(s *Spec) { s.Links[""] = "y" },
		"twice":           func(s *Spec) { s.Links["/bin/program"] = "y" },
		"file is missing": func(s *Spec) { s.Files["/bin/x"] = "/nowhere/at/all" },
	} {
		s := example(t)
		spoil(&s)
		if _, err := s.Build(); err == nil {
			t.Errorf("%s: it was made", name)
		}
	}
}
