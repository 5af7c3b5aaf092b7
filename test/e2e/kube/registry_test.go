// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/weir-storage/weir/hack/image"
)

// TestRegistry pushes an image and an archive, and pulls them as a node does.
func TestRegistry(t *testing.T) {
	r := &images{}
	server := httptest.NewServer(registry.New(registry.WithBlobHandler(&r.blobs), registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	r.address = strings.TrimPrefix(server.URL, "http://")
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/true"), 0o700); err != nil {
		t.Fatal(err)
	}
	spec := image.Spec{Files: map[string]string{"/program": program}, Entrypoint: []string{"/program"}}
	img, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.push(t.Context(), "weir.test/some/folder/app:1", img); err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(parse(t, r.address+"/some/folder/app:1"))
	if err != nil {
		t.Fatal(err)
	}
	layers, err := pulled.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("layers %v, %v", layers, err)
	}
	blob, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	digest, _, err := v1.SHA256(blob)
	want, werr := layers[0].Digest()
	if err != nil || werr != nil || digest != want {
		t.Errorf("the layer that is served has digest %v, its name is %v; %v", digest, want, err)
	}
	for _, bad := range []string{"app:1", "elsewhere.test/app:1", "weir.test/APP:1"} {
		if err := r.push(t.Context(), bad, img); err == nil {
			t.Errorf("an image was pushed as %s", bad)
		}
	}

	packed, err := spec.BuildCompressed(filepath.Join(t.TempDir(), "layers"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	index, err := image.Index(packed)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "weir.oci.tar")
	if err := image.WriteArchive(file, "2.0", index); err != nil {
		t.Fatal(err)
	}
	a, err := image.OpenArchive(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	if err := r.pushArchive(t.Context(), "weir", a); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"/weir:2.0", "/weir@" + a.Digest().String()} {
		got, err := remote.Index(parse(t, r.address+ref))
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(got); err != nil {
			t.Errorf("%s: %v", ref, err)
		}
	}
	if _, err := remote.Index(parse(t, r.address+"/weir:3.0")); err == nil {
		t.Error("a tag that nobody pushed is there")
	}
}

func parse(t *testing.T, ref string) name.Reference {
	t.Helper()
	parsed, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
