// SPDX-License-Identifier: Apache-2.0

package data

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/test/e2e/bed"
)

const (
	chunk = 1 << 20 // bytes that are written at once
	// chunks is the number of chunks: 2.5 times what a pool may hold, so that only stores have the
	// older segments.
	chunks = 640
	// samples is the number of bits to flip for each kind of field: half of them only in the store
	// of the gateway's own site, the others in all stores.
	samples = 12
)

// random is a chunk of the file: it does not compress.
func random(i int) []byte {
	var seed [8]byte
	binary.BigEndian.PutUint64(seed[:], uint64(i))
	p := make([]byte, chunk)
	_, _ = rand.NewChaCha8(sha256.Sum256(seed[:])).Read(p) // never fails
	return p
}

// expect is what the file holds at [from, to).
func expect(from, to int64) (p []byte) {
	for i := from / chunk; i*chunk < to; i++ {
		c := random(int(i))
		p = append(p, c[max(from-i*chunk, 0):min(to-i*chunk, chunk)]...)
	}
	return p
}

// damaged is a volume with one file, of which a part is only in the stores.
type damaged struct {
	*bed.Scene
	file   *client.File
	stores map[string]string   // folder of the bucket, by site
	gone   map[uint64]object   // segments that are on no pool
	kinds  map[string][]field  // fields in those segments
	used   map[[2]int64]bool   // blocks that were read: they may be in memory
	count  map[string][3]int64 // by kind: right, EIO, wrong
}

func newDamaged(t *testing.T) *damaged {
	t.Helper()
	sizes := map[string]string{"a": "256Mi", "b": "256Mi", "c": "256Mi"}
	d := &damaged{Scene: bed.NewScene(t, bed.Config{PoolSize: sizes}, bed.Manifest("v", 2, "a")), stores: map[string]string{},
		gone:  map[uint64]object{},
		kinds: map[string][]field{}, used: map[[2]int64]bool{}, count: map[string][3]int64{}}
	d.file = d.open("a", true)
	for i := range chunks {
		if _, err := d.file.WriteAt(d.Ctx, random(i), uint64(i)*chunk, xdr.FILE_SYNC4); err != nil {
			t.Fatalf("write MiB %d: %v", i, err)
		}
	}
	(&scene{Scene: d.Scene}).settled()
	d.survey()
	return d
}

// open opens the file at a site's gateway, for a client that is the site's own host.
func (d *damaged) open(site string, create bool) *client.File {
	d.T.Helper()
	c := d.Client(site)
	f, err := c.Open(d.Ctx, d.Root(c), "file", client.OpenArgs{Create: create})
	if err != nil {
		d.T.Fatal(err)
	}
	return f
}

// survey finds the segments that only stores have, and their fields.
func (d *damaged) survey() {
	d.T.Helper()
	local := map[string]bool{}
	for _, site := range d.Bed.Names() {
		d.stores[site] = filepath.Join(d.Bed.Site(site).S3.Dir(), "weir")
		pool, err := filepath.Glob(filepath.Join(d.Bed.Site(site).PoolDir(), "volumes", "*", "*.seg"))
		if err != nil {
			d.T.Fatal(err)
		}
		for _, f := range pool {
			local[filepath.Base(f)] = true
		}
	}
	at, n := int64(0), 0
	for i, o := range objects(d.T, d.stores["a"]) {
		if o.seq != uint64(i)+1 {
			d.T.Fatalf("store of a has segment %d at place %d", o.seq, i+1)
		}
		b, err := os.ReadFile(filepath.Join(d.stores["a"], o.name))
		if err != nil {
			d.T.Fatal(err)
		}
		var all []field
		all, at = fields(d.T, o.seq, b, at)
		if local[fmt.Sprintf("%016x.seg", o.seq)] || at > chunks*chunk/2 {
			continue // the second half may be in memory
		}
		n++
		d.gone[o.seq] = o
		for _, f := range all {
			d.kinds[f.kind] = append(d.kinds[f.kind], f)
		}
	}
	if n < 3 {
		d.T.Fatalf("%d segments are in stores alone: too few to try anything", n)
	}
	d.T.Logf("%d segments are in stores alone", n)
}

// try flips a bit of the field at some sites' stores, reads the bytes that need it through the
// gateway at a, and flips it back.
func (d *damaged) try(f field, sites []string) {
	d.T.Helper()
	d.used[[2]int64{f.from, f.to}] = true
	off, bit := f.off+rand.Int64N(f.len), rand.UintN(8)
	turn := func() {
		for _, s := range sites {
			flip(d.T, filepath.Join(d.stores[s], d.gone[f.seq].name), off, bit)
		}
	}
	turn()
	p := make([]byte, f.to-f.from)
	n, _, err := d.file.ReadAt(d.Ctx, p, uint64(f.from))
	turn()
	c := d.count[f.kind]
	switch {
	case errors.Is(err, xdr.NFS4ERR_IO):
		c[1]++
		if len(sites) == 1 {
			d.T.Errorf("%s at %d of segment %d damaged in one store: EIO, although others have it right", f.kind, off, f.seq)
		}
	case err == nil && n == len(p) && bytes.Equal(p, expect(f.from, f.to)):
		c[0]++
		if len(sites) > 1 && (f.kind == "block" || f.kind == "block's tag") {
			d.T.Errorf("%s at %d of segment %d damaged in all stores: it was read all the same: the sample shows nothing", f.kind, off,
				f.seq)
		}
	default:
		c[2]++
		d.T.Errorf("%s at %d of segment %d damaged at %v: read %d bytes of %d, %v, and they are wrong", f.kind, off, f.seq, sites, n,
			len(p), err)
	}
	d.count[f.kind] = c
}

// sample picks a field of a kind whose block was not read yet.
func (d *damaged) sample(kind string) field {
	d.T.Helper()
	all := d.kinds[kind]
	for range 1000 {
		f := all[rand.IntN(len(all))]
		if len(all) <= samples || !d.used[[2]int64{f.from, f.to}] {
			return f
		}
	}
	d.T.Fatalf("no %s is left that was not read", kind)
	return field{}
}

// TestFlippedBits flips bits in every kind of field of segments that only stores have, and reads
// through a running gateway. The gateway returns the right bytes, from another copy, or EIO. A new
// copy that a gateway makes from such a log is right too.
func TestFlippedBits(t *testing.T) {
	d := newDamaged(t)
	var kinds []string
	for kind := range d.kinds {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	for _, kind := range kinds {
		for i := range samples {
			sites := d.Bed.Names()
			if i%2 == 0 {
				sites = sites[:1]
			}
			d.try(d.sample(kind), sites)
		}
	}
	var sum [3]int64
	for _, kind := range kinds {
		c := d.count[kind]
		t.Logf("%-24s right %2d, EIO %2d, wrong %d", kind, c[0], c[1], c[2])
		for i := range sum {
			sum[i] += c[i]
		}
	}
	t.Logf("%d bits flipped: right %d, EIO %d, wrong %d", sum[0]+sum[1]+sum[2], sum[0], sum[1], sum[2])
	if sum[0]+sum[1]+sum[2] < 200 {
		t.Error("fewer than 200 samples")
	}
	d.rebuild()
}

// rebuild damages every segment at its home's store. Then the gateway at c begins with an empty
// pool, and rebuild reads the whole file there.
func (d *damaged) rebuild() {
	d.T.Helper()
	n := 0
	for kind, all := range d.kinds {
		if kind == "block" {
			all = all[:min(len(all), 100)]
		}
		perSegment := map[uint64]bool{}
		for _, f := range all {
			if !perSegment[f.seq] {
				perSegment[f.seq] = true
				flip(d.T, filepath.Join(d.stores["a"], d.gone[f.seq].name), f.off+rand.Int64N(f.len), rand.UintN(8))
				n++
			}
		}
	}
	d.T.Logf("%d bits flipped in %d segments of the store of a", n, len(d.gone))
	c := d.Bed.Site("c")
	if err := c.Gateway().Terminate(d.Ctx); err != nil {
		d.T.Fatal(err)
	}
	if err := os.RemoveAll(c.PoolDir()); err != nil {
		d.T.Fatal(err)
	}
	if err := c.StartGateway(); err != nil {
		d.T.Fatal(err)
	}
	d.Await("a", func(st bed.Status) bool {
		for _, r := range st.Replicas {
			if r.Site == "c" && r.LagBytes != nil && *r.LagBytes == 0 && (r.State == "Follower" || r.State == "Member") {
				return true
			}
		}
		return false
	})
	f := d.open("c", false)
	p := make([]byte, chunk)
	for i := range chunks {
		k, _, err := f.ReadAt(d.Ctx, p, uint64(i)*chunk)
		if err != nil || k != chunk || !bytes.Equal(p, random(i)) {
			d.T.Fatalf("MiB %d at c: %d bytes, %v, or not what was written", i, k, err)
		}
	}
	d.T.Logf("the copy at c was made anew, and all %d MiB of it are right", chunks)
}
