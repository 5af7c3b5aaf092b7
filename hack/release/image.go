// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/weir-storage/weir/hack/image"
)

// user is neither root nor anybody on a node; the chart runs all but the node plugin as it.
const user = "65532:65532"

// packImage writes the archive of the image, pushes it if that was asked, and returns its digest.
func (r *release) packImage(ctx context.Context, programs map[platform]string) (digest string, err error) {
	index, err := r.image(programs)
	if err != nil {
		return "", err
	}
	hash, err := index.Digest()
	if err != nil {
		return "", err
	}
	if err := image.WriteArchive(r.file(".oci.tar"), r.version, index); err != nil {
		return "", err
	}
	if r.push != "" {
		err = r.pushImage(ctx, index)
	}
	return hash.String(), err
}

// image makes the image for all platforms of linux at the same time.
func (r *release) image(programs map[platform]string) (v1.ImageIndex, error) {
	roots := rootCertificates()
	var arches []string
	for _, p := range r.platforms {
		if p.os == "linux" {
			arches = append(arches, p.arch)
		}
	}
	if len(arches) == 0 {
		return nil, fmt.Errorf("-platforms %v has no linux: an image needs one", r.platforms)
	}
	images, errs := make([]v1.Image, len(arches)), make([]error, len(arches))
	var wg sync.WaitGroup
	for i, arch := range arches {
		spec := image.Spec{
			Arch:       arch,
			Files:      map[string]string{"/bin/weir": programs[platform{"linux", arch}]},
			Texts:      map[string][]byte{"/etc/ssl/certs/ca-certificates.crt": roots},
			Folders:    []string{"/tmp"},
			Entrypoint: []string{"/bin/weir"},
			User:       user,
			Env:        []string{"PATH=/bin"},
			Labels: map[string]string{
				"org.opencontainers.image.title":    "weir",
				"org.opencontainers.image.version":  r.version,
				"org.opencontainers.image.revision": r.commit,
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
			Created: r.time,
		}
		wg.Go(func() { images[i], errs[i] = spec.BuildCompressed(r.cache, time.Now()) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return image.Index(images...)
}

// rootCertificates are Mozilla's, as a file. A file cannot say of a root that only its certificates
// from before some day are good, so roots for which that holds are left out.
func rootCertificates() []byte {
	var all []byte
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})...)
		}
	}
	return all
}

// pushImage pushes to PREFIX/weir:VERSION, with the credentials of the docker or podman client.
// Registries on this machine are spoken to without TLS, as crane does.
func (r *release) pushImage(ctx context.Context, index v1.ImageIndex) error {
	ref, err := name.NewTag(strings.TrimSuffix(r.push, "/") + "/weir:" + r.version)
	if err != nil {
		return fmt.Errorf("-push %q: %w: write REGISTRY/FOLDER", r.push, err)
	}
	if err := remote.WriteIndex(ref, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push %s: %w", ref, err)
	}
	hash, err := index.Digest()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(os.Stdout, "%s@%s\n", ref, hash)
	return err
}
