// SPDX-License-Identifier: Apache-2.0

package caches

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sync/errgroup"

	"github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/test/e2e/bed"
	"github.com/weir-storage/weir/test/e2e/stage"
)

const (
	size    = 210_000 // of a file
	workers = 16
	// quiet is how long the link is watched while nobody reads.
	quiet = 3 * time.Second
)

// files is how many there are. The soak has 2 GiB of them, compares times, and is alone on its
// machine.
func files() (n int, compares bool) {
	if os.Getenv("WEIR_SOAK") != "" {
		return 10_000, true
	}
	return 400, false
}

// manifest is of a volume whose only copy is at a. Its readers may be shown a state of some age: on
// a machine that does much else, the home's word may come late.
const manifest = `apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: v}
spec:
  size: 20Gi
  replication: {copies: 1}
  durability: {acknowledge: Gateway, maxLag: {time: 8s}}
  consistency: {mode: Bounded, maxStaleness: %s}
  home: {preferredSites: [a]}
`

func content(n int) []byte {
	b := make([]byte, size)
	var seed [32]byte
	binary.BigEndian.PutUint64(seed[:], uint64(n))
	_, _ = rand.NewChaCha8(seed).Read(b) // never fails
	return b
}

// each calls f for each file, some at a time.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	return g.Wait()
}

// scene is the volume with its files, and a reader at each site.
type scene struct {
	*bed.Scene
	n       int
	clients map[string]*client.Client
	roots   map[string]client.FH
}

// passed returns how many bytes the kernel counted on the link into and out of a site.
func (s *scene) passed(site string) (n uint64) {
	s.T.Helper()
	out, err := s.Bed.Site(site).Command(s.Ctx, "ip", "-j", "-s", "link").Output()
	var links []struct {
		Name  string `json:"ifname"`
		Stats struct {
			RX, TX struct{ Bytes uint64 }
		} `json:"stats64"`
	}
	if err == nil {
		err = json.Unmarshal(out, &links)
	}
	for _, l := range links {
		if len(l.Name) > 3 && l.Name[:3] == "wan" {
			n += l.Stats.RX.Bytes + l.Stats.TX.Bytes
		}
	}
	if err != nil || n == 0 {
		s.T.Fatalf("the counters of %s's link: %d, %v in %s", site, n, err, out)
	}
	return n
}

// read looks a file up, asks for its attributes, and reads it, as a program that opens it does.
func (s *scene) read(ctx context.Context, site string, i int, p []byte) error {
	c := s.clients[site]
	a, err := c.Lookup(ctx, s.roots[site], fmt.Sprint("f", i))
	if err == nil {
		a, err = c.GetAttr(ctx, a.FH)
	}
	if err != nil {
		return err
	}
	for off := 0; off < size; {
		n, eof, err := c.Read(ctx, a.FH, xdr.Stateid{}, p[off:], uint64(off))
		if err != nil {
			return err
		}
		if off += n; n == 0 || eof != (off == size) {
			return fmt.Errorf("file %d ends at %d", i, off)
		}
	}
	return nil
}

// all reads all files, and compares them if it is to.
func (s *scene) all(site string, compare bool) (took time.Duration) {
	s.T.Helper()
	begin := time.Now()
	err := each(s.Ctx, s.n, func(ctx context.Context, i int) error {
		p := make([]byte, size)
		if err := s.read(ctx, site, i, p); err != nil {
			return fmt.Errorf("file %d: %w", i, err)
		}
		if compare && !bytes.Equal(p, content(i)) {
			return fmt.Errorf("file %d is not what was written", i)
		}
		return nil
	})
	if err != nil {
		s.T.Fatal(err)
	}
	return time.Since(begin)
}

// oneByOne reads some files one after the other, and returns how long the middle one took.
func (s *scene) oneByOne(site string) time.Duration {
	s.T.Helper()
	var took []time.Duration
	p := make([]byte, size)
	for i := range min(s.n, 500) {
		begin := time.Now()
		if err := s.read(s.Ctx, site, i, p); err != nil {
			s.T.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// s3 copies all files from a's S3 server to c with a plain client, many at once.
func (s *scene) s3() (took time.Duration) {
	s.T.Helper()
	open := func(site string) *minio.Client {
		access, secret := s.Bed.Site("a").S3.Keys()
		cl, err := minio.New(s.Bed.Site("a").S3.Addr(), &minio.Options{Creds: credentials.NewStaticV4(access, secret, ""),
			Transport: &http.Transport{DialContext: s.Bed.Site(site).DialContext, MaxIdleConnsPerHost: workers}})
		if err != nil {
			s.T.Fatal(err)
		}
		return cl
	}
	at, far := open("a"), open("c")
	err := at.MakeBucket(s.Ctx, "plain", minio.MakeBucketOptions{})
	if err == nil {
		err = each(s.Ctx, s.n, func(ctx context.Context, i int) error {
			_, err := at.PutObject(ctx, "plain", fmt.Sprint("f", i), bytes.NewReader(content(i)), size, minio.PutObjectOptions{})
			return err
		})
	}
	if err != nil {
		s.T.Fatal(err)
	}
	begin := time.Now()
	err = each(s.Ctx, s.n, func(ctx context.Context, i int) error {
		o, err := far.GetObject(ctx, "plain", fmt.Sprint("f", i), minio.GetObjectOptions{})
		if err != nil {
			return err
		}
		n, err := io.Copy(io.Discard, o)
		if err == nil && n != size {
			err = fmt.Errorf("object %d has %d bytes", i, n)
		}
		return errors.Join(err, o.Close())
	})
	if err != nil {
		s.T.Fatal(err)
	}
	return time.Since(begin)
}

// At a site without a copy the first read brings each byte once; the second brings nothing, and is
// as fast as at home. A byte that is changed at home brings little.
func TestCache(t *testing.T) {
	n, compares := files()
	stale := 20 * time.Second
	if compares {
		stale = 2 * time.Second
	}
	cfg := bed.Config{Sites: []string{"a", "c"}, Cache: "64Mi", PoolSize: map[string]string{"a": "8Gi", "c": "8Gi"}}
	s := &scene{Scene: bed.NewScene(t, cfg, fmt.Sprintf(manifest, stale)), n: n, clients: map[string]*client.Client{},
		roots: map[string]client.FH{}}
	if err := s.Bed.Stage.SetLink(s.Ctx, "c", stage.Link{Delay: 20 * time.Millisecond, Rate: 200e6}); err != nil {
		t.Fatal(err)
	}
	// Connections that were made before know another link, and are slow for some time.
	s.Bed.Site("c").Gateway().Kill()
	if err := s.Bed.Site("c").StartGateway(); err != nil {
		t.Fatal(err)
	}
	if err := s.Bed.AwaitSites(s.Ctx); err != nil {
		t.Fatal(err)
	}
	for _, site := range []string{"a", "c"} {
		s.clients[site] = s.Client(site)
		s.roots[site] = s.Root(s.clients[site])
	}
	var written atomic.Int64
	handles := make([]*client.File, n)
	err := each(s.Ctx, n, func(ctx context.Context, i int) error {
		f, err := s.clients["a"].Open(ctx, s.roots["a"], fmt.Sprint("f", i),
			client.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_BOTH, Create: true})
		if err != nil {
			return err
		}
		handles[i] = f
		_, err = s.clients["a"].Write(ctx, f.FH(), f.Stateid(), content(i), 0, xdr.FILE_SYNC4)
		written.Add(size)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for { // until c has followed to the last file
		if _, err := s.clients["c"].Lookup(s.Ctx, s.roots["c"], fmt.Sprint("f", n-1)); err == nil {
			break
		} else if s.Ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(2 * time.Second)
	total := uint64(written.Load())

	was := s.passed("c")
	first := s.all("c", false)
	brought := s.passed("c") - was
	plain := s.s3()
	was = s.passed("c")
	time.Sleep(quiet)
	idle := s.passed("c") - was
	was = s.passed("c")
	second := s.all("c", true)
	again := s.passed("c") - was
	at, home := s.oneByOne("c"), s.oneByOne("a")
	rate := func(d time.Duration) float64 { return float64(total) / (1 << 20) / d.Seconds() }
	t.Logf("%d files, %d MiB. First read: %.1f MiB/s, %.2f bytes on the link for each; a plain copy by S3: %.1f MiB/s. "+
		"Second read: %.1f MiB/s, %d KiB on the link, which has %d KiB each second anyway. A file by itself: %v at the cache, %v at home",
		n, total>>20, rate(first), float64(brought)/float64(total), rate(plain), rate(second), again>>10, idle>>10/3,
		at.Round(10*time.Microsecond), home.Round(10*time.Microsecond))
	if brought > total*6/5 {
		t.Errorf("the first read of %d bytes brought %d", total, brought)
	}
	if most := 64<<10 + 2*uint64(float64(idle)*second.Seconds()/quiet.Seconds()); again > most {
		t.Errorf("the second read brought %d bytes in %v; an idle link has %d in %v", again, second, idle, quiet)
	}

	was = s.passed("c")
	if _, err := s.clients["a"].Write(s.Ctx, handles[7].FH(), handles[7].Stateid(), []byte("!"), 1000, xdr.FILE_SYNC4); err != nil {
		t.Fatal(err)
	}
	acknowledged := time.Now()
	p := make([]byte, size)
	for p[1000] != '!' {
		begin := time.Now()
		if err := s.read(s.Ctx, "c", 7, p); err != nil {
			t.Fatal(err)
		}
		if age := begin.Sub(acknowledged); p[1000] != '!' && age > stale {
			t.Fatalf("what was changed %v ago is not shown", age)
		}
	}
	took := time.Since(acknowledged)
	change := s.passed("c") - was
	t.Logf("a byte that was changed at home: shown after %v, %d KiB on the link", took.Round(time.Millisecond), change>>10)
	if change > 256<<10 {
		t.Errorf("a byte that was changed brought %d bytes", change)
	}
	if !compares {
		return
	}
	if first.Seconds() > plain.Seconds()/0.8 {
		t.Errorf("the first read took %v, a plain copy %v", first, plain)
	}
	if at.Seconds() > home.Seconds()*1.1 {
		t.Errorf("a file by itself takes %v at the cache, %v at home", at, home)
	}
}
