// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// made makes a whole release for linux and returns its folder. It uses nothing of releases before,
// but what Go compiled.
func made(t *testing.T, push string) *release {
	t.Helper()
	r := &release{out: filepath.Join(t.TempDir(), "dist"), push: push}
	if err := r.ask(strings.Join(allParts, ","), "linux/amd64,linux/arm64", nil); err != nil {
		t.Fatal(err)
	}
	if err := r.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	depend(t, r.root)
	r.cache = filepath.Join(t.TempDir(), "layers")
	if err := r.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// depend looks at all files of the tree. `go test` repeats a test if what it looked at has changed,
// and knows nothing of what the programs that it runs read.
func depend(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (name == filepath.Join(root, "bin") || name == filepath.Join(root, "dist") || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if err == nil && d.Type().IsRegular() {
			_, err = os.Stat(name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// contents are a folder's files.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// entry is one of a tar file.
type entry struct {
	header *tar.Header
	data   []byte
}

func untar(t *testing.T, r io.Reader) map[string]entry {
	t.Helper()
	files := map[string]entry{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = entry{h, data}
	}
}

// TestRelease makes a release twice, where what must not matter differs: the folder, the time, the
// umask, the time zone, and what the environment says to Go.
func TestRelease(t *testing.T) {
	one := made(t, "")
	user := filepath.Join(t.TempDir(), "goenv") // what `go env -w` writes
	if err := os.WriteFile(user, []byte("GOFLAGS=-tags=other\nGOEXPERIMENT=arenas\nGOARM64=v9.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOENV", user)
	t.Setenv("GOFLAGS", "-tags=other")
	t.Setenv("GOAMD64", "v3")
	t.Setenv("TZ", "Asia/Tokyo")
	defer syscall.Umask(syscall.Umask(0o077))
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	two := made(t, "")
	files, again := contents(t, one.out), contents(t, two.out)
	if len(files) != 7 {
		t.Errorf("there are %d files, want two archives of programs, image, chart, CRDs, list of modules, checksums", len(files))
	}
	for file, data := range files {
		if !bytes.Equal(data, again[file]) {
			t.Errorf("%s has %d bytes, and made again %d others", file, len(data), len(again[file]))
		}
	}
	t.Run("image", func(t *testing.T) { checkImage(t, one) })
	t.Run("pushed", func(t *testing.T) { checkPush(t, one, strings.TrimPrefix(server.URL, "http://")) })
	t.Run("programs", func(t *testing.T) { checkPrograms(t, one) })
	t.Run("chart", func(t *testing.T) { checkChart(t, one) })
	t.Run("modules", func(t *testing.T) { checkSBOM(t, one) })
	t.Run("checksums", func(t *testing.T) {
		cmd := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
		cmd.Dir = one.out
		if out, err := cmd.CombinedOutput(); err != nil || bytes.Count(out, []byte(": OK")) != len(files)-1 {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("CRDs", func(t *testing.T) {
		if n := bytes.Count(files["weir-"+one.version+"-crds.yaml"], []byte("\nkind: CustomResourceDefinition\n")); n < 5 {
			t.Errorf("there are %d definitions, want all five and more", n)
		}
	})
}

// unpacked is the image of a release, read by the library from an unpacked archive.
func unpacked(t *testing.T, r *release) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-C", dir, "-xf", r.file(".oci.tar")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := top.IndexManifest()
	if err != nil || len(m.Manifests) != 1 {
		t.Fatalf("index.json has %+v, %v: it must name one image", m, err)
	}
	index, err := top.ImageIndex(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func checkImage(t *testing.T, r *release) {
	index := unpacked(t, r)
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	m, err := index.IndexManifest()
	if err != nil || len(m.Manifests) != 2 {
		t.Fatalf("index %+v, %v", m, err)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		d := m.Manifests[i]
		if d.Platform == nil || d.Platform.OS != "linux" || d.Platform.Architecture != arch {
			t.Errorf("image %d is for %v, want linux/%s", i, d.Platform, arch)
		}
		img, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		c := config.Config
		if config.OS != "linux" || config.Architecture != arch || c.User != "65532:65532" ||
			!slices.Equal(c.Entrypoint, []string{"/bin/weir"}) || c.Labels["org.opencontainers.image.version"] != r.version {
			t.Errorf("configuration of %s: %+v", arch, config)
		}
		layers, err := img.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatalf("layers %v, %v", layers, err)
		}
		blob, err := layers[0].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		files := untar(t, blob)
		if !x509.NewCertPool().AppendCertsFromPEM(files["etc/ssl/certs/ca-certificates.crt"].data) {
			t.Errorf("%s has no root certificates", arch)
		}
		if tmp := files["tmp/"]; tmp.header == nil || tmp.header.Mode != 0o1777 {
			t.Errorf("%s has no /tmp", arch)
		}
		program := filepath.Join(t.TempDir(), "weir")
		if err := os.WriteFile(program, files["bin/weir"].data, 0o700); err != nil {
			t.Fatal(err)
		}
		var run []string
		if arch != runtime.GOARCH {
			emulator := map[string]string{"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"}[arch]
			if _, err := exec.LookPath(emulator); err != nil {
				t.Errorf("%v: run hack/install-deps", err)
				continue
			}
			run = []string{emulator}
		}
		run = append(run, program, "version")
		out, err := exec.CommandContext(t.Context(), run[0], run[1:]...).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "weir "+r.version+" (") || !strings.HasSuffix(string(out), "linux/"+arch+")\n") {
			t.Errorf("%q printed %q, %v", run, out, err)
		}
	}
}

// checkPush pushes and asks the registry what it has.
func checkPush(t *testing.T, r *release, address string) {
	index := unpacked(t, r)
	r.push = address + "/some/folder/"
	defer func() { r.push = "" }()
	if err := r.pushImage(t.Context(), index); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(address + "/some/folder/weir:" + r.version)
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(got); err != nil {
		t.Error(err)
	}
	have, err := got.Digest()
	want, werr := index.Digest()
	if err != nil || werr != nil || have != want {
		t.Errorf("the registry has %v, pushed was %v", have, want)
	}
}

func checkPrograms(t *testing.T, r *release) {
	for _, arch := range []string{"amd64", "arm64"} {
		f, err := os.Open(r.file("-linux-" + arch + ".tar.gz"))
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		files := untar(t, z)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		for _, file := range []string{"weir", "kubectl_complete-weir"} {
			if h := files[file].header; h == nil || h.Mode != 0o755 || h.Size == 0 {
				t.Errorf("%s: %s is no program: %+v", arch, file, h)
			}
		}
		if h := files["kubectl-weir"].header; h == nil || h.Linkname != "weir" {
			t.Errorf("%s: kubectl-weir is %+v", arch, h)
		}
		for file, want := range map[string]string{"completions/weir.bash": "__start_weir", "completions/_weir": "#compdef weir",
			"completions/weir.fish": "complete -c weir", "LICENSE": "Apache License"} {
			if !strings.Contains(string(files[file].data), want) {
				t.Errorf("%s: %s does not have %q", arch, file, want)
			}
		}
	}
}

// checkChart asks helm what is in the chart.
func checkChart(t *testing.T, r *release) {
	helm := func(args ...string) string {
		t.Helper()
		out, err := output(t.Context(), r.out, filepath.Join(r.tools, "helm"), args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	chart := r.file(".tgz")
	about := helm("show", "chart", chart)
	for _, want := range []string{"\nversion: " + r.version, "appVersion: " + r.version} {
		if !strings.Contains("\n"+about, want) {
			t.Errorf("the chart says %q, want %q in it", about, want)
		}
	}
	text := helm("template", "weir", chart, "--namespace", "weir-system", "--set", "imageRegistry=example.test/mirror",
		"-f", filepath.Join(r.root, "charts/weir/ci/trial-values.yaml"))
	digest, err := unpacked(t, r).Digest()
	if err != nil {
		t.Fatal(err)
	}
	want := "image: example.test/mirror/weir:" + r.version
	if strings.Contains(imageBlock.FindString(helm("show", "values", chart)), "\n  digest:") {
		want = "@" + digest.String() // instead of the tag, or behind it
	}
	if n := strings.Count(text, want); n < 3 {
		t.Errorf("%d containers have %q, want all of Weir's", n, want)
	}
}

func checkSBOM(t *testing.T, r *release) {
	data, err := os.ReadFile(r.file(".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := json.Unmarshal(data, &bom); err != nil {
		t.Fatal(err)
	}
	if bom.BOMFormat != "CycloneDX" || bom.Metadata.Component.Version != r.version {
		t.Errorf("format %q, component %+v", bom.BOMFormat, bom.Metadata.Component)
	}
	found := map[string]bool{}
	for _, c := range *bom.Components {
		found[c.Name] = c.Version != "" && strings.HasPrefix(c.PackageURL, "pkg:golang/"+c.Name+"@")
	}
	for _, module := range []string{"std", "github.com/cockroachdb/pebble/v2", "google.golang.org/grpc", "github.com/spf13/cobra"} {
		if !found[module] {
			t.Errorf("%s is not in the list of %d modules", module, len(found))
		}
	}
	if found["github.com/google/go-containerregistry"] {
		t.Error("the list has a module that only building needs")
	}
}
