// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func example(t *testing.T) Image {
	t.Helper()
	dir := t.TempDir()
	program, text := filepath.Join(dir, "program"), filepath.Join(dir, "text")
	if err := errors.Join(os.WriteFile(program, []byte("#!/bin/true"), 0o700), os.WriteFile(text, []byte("words"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return Image{
		Name:       "example.test/app:1",
		Files:      map[string]string{"/bin/program": program, "/etc/app/text": text},
		Links:      map[string]string{"/bin/other": "program"},
		Folders:    []string{"/tmp"},
		Entrypoint: []string{"/bin/program", "run"},
		User:       "65532:65532",
		Env:        []string{"PATH=/bin"},
	}
}

// unpack reads a tar file: contents of files, targets of links, "" for folders.
func unpack(t *testing.T, data []byte) (contents map[string]string, modes map[string]int64) {
	t.Helper()
	contents, modes = map[string]string{}, map[string]int64{}
	r := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return contents, modes
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(time.Unix(0, 0)) || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s has time %v and owner %d:%d", h.Name, h.ModTime, h.Uid, h.Gid)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		contents[h.Name], modes[h.Name] = string(b)+h.Linkname, h.Mode
	}
}

// TestArchive follows the pointers from the index to the files, checking every digest.
func TestArchive(t *testing.T) {
	i := example(t)
	var b bytes.Buffer
	if err := i.Write(&b); err != nil {
		t.Fatal(err)
	}
	layout, _ := unpack(t, b.Bytes())
	follow := func(d descriptor, into any) string {
		data, ok := layout["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
		if !ok || digest([]byte(data)) != d.Digest || len(data) != d.Size {
			t.Fatalf("%+v leads to %d bytes", d, len(data))
		}
		if into != nil {
			if err := json.Unmarshal([]byte(data), into); err != nil {
				t.Fatal(err)
			}
		}
		return data
	}
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal([]byte(layout["index.json"]), &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("index %s: %v", layout["index.json"], err)
	}
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != i.Name {
		t.Errorf("name %q", got)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	follow(index.Manifests[0], &manifest)
	var config struct {
		OS     string
		Config struct {
			Entrypoint, Env []string
			User            string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	follow(manifest.Config, &config)
	if config.OS != "linux" || strings.Join(config.Config.Entrypoint, " ") != "/bin/program run" || config.Config.User != i.User ||
		len(manifest.Layers) != 1 || len(config.RootFS.DiffIDs) != 1 || config.RootFS.DiffIDs[0] != manifest.Layers[0].Digest {
		t.Errorf("config %+v, layers %+v", config, manifest.Layers)
	}
	files, modes := unpack(t, []byte(follow(manifest.Layers[0], nil)))
	want := map[string]string{"bin/": "", "bin/program": "#!/bin/true", "bin/other": "program", "etc/": "", "etc/app/": "", "etc/app/text": "words", "tmp/": ""}
	for name, text := range want {
		if got, ok := files[name]; !ok || got != text {
			t.Errorf("%s has %q (there: %v), want %q", name, got, ok, text)
		}
	}
	if len(files) != len(want) || modes["bin/program"] != 0o755 || modes["etc/app/text"] != 0o644 || modes["tmp/"] != 0o1777 {
		t.Errorf("files %v, modes %v", files, modes)
	}
}

func TestSameBytes(t *testing.T) {
	i := example(t)
	var one, two bytes.Buffer
	if err := i.Write(&one); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := os.Chtimes(i.Files["/bin/program"], now, now.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := i.Write(&two); err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Errorf("the second archive differs (%v)", err)
	}
}

func TestRefused(t *testing.T) {
	for name, spoil := range map[string]func(i *Image){
		"no host":         func(i *Image) { i.Name = "app:1" },
		"host, no dot":    func(i *Image) { i.Name = "test/app:1" },
		"no tag":          func(i *Image) { i.Name = "example.test/app" },
		"no entrypoint":   func(i *Image) { i.Entrypoint = nil },
		"relative path":   func(i *Image) { i.Files["bin/x"] = i.Files["/bin/program"] },
		"path not clean":  func(i *Image) { i.Links["/bin/../x"] = "y" },
		"file is missing": func(i *Image) { i.Files["/bin/x"] = "/nowhere/at/all" },
	} {
		i := example(t)
		spoil(&i)
		out := filepath.Join(t.TempDir(), "out.tar")
		if err := i.WriteFile(out); err == nil {
			t.Errorf("%s: it was written", name)
		}
		if left, _ := os.ReadDir(filepath.Dir(out)); len(left) > 0 {
			t.Errorf("%s: %v was left", name, left)
		}
	}
}
