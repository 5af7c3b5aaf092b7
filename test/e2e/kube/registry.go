// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/weir-storage/weir/hack/image"
)

// registryName is what images' names begin with. Nodes are configured with its address.
const registryName = "weir.test"

// registryPort is the registry's, at an address that each site has for it.
const registryPort = 5000

// registryAddr is where the site's nodes reach the registry. It is at the site, so that a site that
// is cut off has its images.
func (s *Site) registryAddr() string { return fmt.Sprintf("%s:%d", s.AddrN(7), registryPort) }

// hosts returns the hosts.toml that gives containerd the registry's address.
func (s *Site) hosts() []byte {
	const text = "server = %[1]q\n[host.%[1]q]\n  capabilities = [\"pull\", \"resolve\"]\n"
	return fmt.Appendf(nil, text, "http://"+s.registryAddr())
}

// images is the registry: one for all sites, in this process. Its methods may be called from
// several goroutines.
type images struct {
	blobs   blobs
	server  http.Server
	remote  []remote.Option
	address string
}

// serveImages starts the registry at all sites.
func (c *Clusters) serveImages() error {
	r := &images{}
	silent := log.New(io.Discard, "", 0)
	r.server = http.Server{Handler: registry.New(registry.WithBlobHandler(&r.blobs), registry.Logger(silent)), ErrorLog: silent}
	c.images = r
	for _, s := range c.sites {
		l, err := s.Listen("tcp", s.registryAddr())
		if err != nil {
			return fmt.Errorf("start registry at site %s: %w", s.Name(), err)
		}
		go func() { _ = r.server.Serve(l) }() // until close
	}
	first := c.sites[c.cfg.Sites[0]]
	r.address = first.registryAddr()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return first.DialContext(ctx, network, address)
	}
	r.remote = []remote.Option{remote.WithTransport(&http.Transport{DialContext: dial, DisableKeepAlives: true})}
	return nil
}

func (r *images) close() error { return r.server.Close() }

// at is where a reference, which begins with registryName, is pushed to.
func (r *images) at(reference string) (name.Reference, error) {
	path, ok := strings.CutPrefix(reference, registryName+"/")
	if !ok {
		return nil, fmt.Errorf("image %q: its name must begin with %s/", reference, registryName)
	}
	return name.ParseReference(r.address+"/"+path, name.Insecure)
}

// push gives an image a name. Its blobs are read from where they are when a node asks for them.
func (r *images) push(ctx context.Context, reference string, img v1.Image) error {
	ref, err := r.at(reference)
	if err != nil {
		return err
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		if err := r.blobs.addLayer(l); err != nil {
			return err
		}
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return err
	}
	hash, err := img.ConfigName()
	if err != nil {
		return err
	}
	r.blobs.add(hash, blob{int64(len(config)), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(config)), nil }})
	return remote.Write(ref, img, append(r.remote, remote.WithContext(ctx))...)
}

// pushArchive gives the image of an archive, which stays open, a name and its tag.
func (r *images) pushArchive(ctx context.Context, repository string, a *image.Archive) error {
	for _, h := range a.Blobs() {
		section, _ := a.Blob(h)
		r.blobs.add(h, blob{section.Size(), func() (io.ReadCloser, error) {
			again, _ := a.Blob(h) // each reader has a position of its own
			return io.NopCloser(again), nil
		}})
	}
	for _, m := range a.Manifests() {
		names := []string{"@" + m.Digest.String()}
		if m.Digest == a.Digest() {
			names = append(names, ":"+a.Tag)
		}
		for _, n := range names {
			ref, err := r.at(registryName + "/" + repository + n)
			if err != nil {
				return err
			}
			if err := remote.Put(ref, m, append(r.remote, remote.WithContext(ctx))...); err != nil {
				return err
			}
		}
	}
	return nil
}

// blobs are what images consist of, each wherever it is on this machine.
type blobs struct {
	mu  sync.Mutex
	all map[v1.Hash]blob
}

type blob struct {
	size int64
	open func() (io.ReadCloser, error)
}

func (b *blobs) add(h v1.Hash, what blob) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[v1.Hash]blob{}
	}
	b.all[h] = what
}

func (b *blobs) addLayer(l v1.Layer) error {
	h, err := l.Digest()
	size, serr := l.Size()
	b.add(h, blob{size, l.Compressed})
	return errors.Join(err, serr)
}

func (b *blobs) find(h v1.Hash) (blob, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	what, ok := b.all[h]
	if !ok {
		return blob{}, registry.ErrNotFound
	}
	return what, nil
}

// Stat and Get are registry.BlobStatHandler and registry.BlobHandler.
func (b *blobs) Stat(_ context.Context, _ string, h v1.Hash) (int64, error) {
	what, err := b.find(h)
	return what.size, err
}

// Get opens a blob.
func (b *blobs) Get(_ context.Context, _ string, h v1.Hash) (io.ReadCloser, error) {
	what, err := b.find(h)
	if err != nil {
		return nil, err
	}
	return what.open()
}
