// SPDX-License-Identifier: Apache-2.0

package image

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
)

// plainLayer is an uncompressed layer. Its bytes are nowhere: they are made of its files each time
// they are read, so that an image takes no room besides what it consists of.
type plainLayer struct {
	entries []Entry
	digest  v1.Hash
	size    int64
}

// newPlainLayer reads all files once, for the digest.
func newPlainLayer(entries []Entry) (*plainLayer, error) {
	l := &plainLayer{entries: entries}
	hash := sha256.New()
	var n counter
	if err := l.write(io.MultiWriter(hash, &n)); err != nil {
		return nil, err
	}
	l.digest = v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(hash.Sum(nil))}
	l.size = int64(n)
	return l, nil
}

func (l *plainLayer) write(w io.Writer) error { return WriteTar(w, time.Unix(0, 0), l.entries) }

// Digest and DiffID are the same without compression.
func (l *plainLayer) Digest() (v1.Hash, error)             { return l.digest, nil }
func (l *plainLayer) DiffID() (v1.Hash, error)             { return l.digest, nil }
func (l *plainLayer) Size() (int64, error)                 { return l.size, nil }
func (l *plainLayer) MediaType() (types.MediaType, error)  { return types.OCIUncompressedLayer, nil }
func (l *plainLayer) Compressed() (io.ReadCloser, error)   { return stream(l.write), nil }
func (l *plainLayer) Uncompressed() (io.ReadCloser, error) { return stream(l.write), nil }

type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// keep is how long a compressed layer stays in the cache after its last use.
const keep = 14 * 24 * time.Hour

// compress gives the layer gzipped, from a file of the cache whose name is the digest of what is in
// it. It is made when it is missing; what nobody used for long is removed. now is the time of use.
func compress(l *plainLayer, cache string, now time.Time) (v1.Layer, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	name := filepath.Join(cache, l.digest.Hex+".tar.gz")
	if err := os.Chtimes(name, now, now); errors.Is(err, os.ErrNotExist) {
		// No name and no time in its header, and a pinned module: so bytes stay the same.
		err := create(name, func(w io.Writer) error {
			z := gzip.NewWriter(w)
			return errors.Join(l.write(z), z.Close())
		})
		if err != nil {
			return nil, fmt.Errorf("compress layer: %w", err)
		}
	} else if err != nil {
		return nil, err
	}
	if err := prune(cache, now.Add(-keep)); err != nil {
		return nil, err
	}
	compressed, err := tarball.LayerFromFile(name, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	// A file that was damaged would go out as a different image under the same version.
	if id, err := compressed.DiffID(); err != nil || id != l.digest {
		return nil, errors.Join(fmt.Errorf("%s holds %v, not what its name says: remove it", name, id), err)
	}
	// Hides the method Descriptor. It has empty annotations, which no manifest's text has.
	return struct{ v1.Layer }{compressed}, nil
}

// prune removes compressed layers that were last used before a time.
func prune(cache string, before time.Time) error {
	names, err := filepath.Glob(filepath.Join(cache, "*.tar.gz"))
	if err != nil {
		return err
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err == nil && info.ModTime().Before(before) {
			err = os.Remove(name)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) { // another run may prune at the same time
			return err
		}
	}
	return nil
}
