// SPDX-License-Identifier: Apache-2.0

package data

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-storage/weir/test/e2e/bed"
	"github.com/weir-storage/weir/test/e2e/stage"
)

// scene is a volume with its home at a, and a machine there that has it mounted at /mnt/v.
type scene struct {
	t     *testing.T
	ctx   context.Context
	bed   *bed.Bed
	tool  string
	guest *stage.Guest
}

func newScene(t *testing.T, cfg bed.Config) *scene {
	t.Helper()
	b := bed.Test(t, cfg)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	s := &scene{t: t, ctx: ctx, bed: b}
	var err error
	if s.tool, err = b.Tool(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.Create(ctx, "a", bed.Manifest("v", 2, "a")); err != nil {
		t.Fatal(err)
	}
	if s.guest, err = b.Site("a").Guest(ctx, "wa"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Site("a").Mount(ctx, s.guest, "v"); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *scene) run(script string) string {
	s.t.Helper()
	r, err := s.guest.Run(s.ctx, script)
	if err != nil || r.Code != 0 {
		s.t.Fatalf("%s: %v, exit code %d: %s%s", script, err, r.Code, r.Stdout, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout)
}

// size is how many bytes of files there are below a folder.
func size(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// settled waits until all copies have everything and no store grows any more, and returns the bytes at the stores.
func (s *scene) settled() map[string]int64 {
	s.t.Helper()
	_, err := s.bed.Await(s.ctx, "a", "v", func(st bed.Status) bool {
		for _, r := range st.Replicas {
			if r.LagBytes == nil || *r.LagBytes != 0 {
				return false
			}
		}
		return len(st.Replicas) == 3
	})
	if err != nil {
		s.t.Fatal(err)
	}
	at := map[string]int64{}
	for calm := 0; calm < 2; {
		if s.ctx.Err() != nil {
			s.t.Fatal("stores do not come to rest")
		}
		time.Sleep(6 * time.Second) // longer than half of maxLag, after which what is new is sealed and uploaded
		calm++
		for _, name := range s.bed.Names() {
			if n := size(s.t, s.bed.Site(name).S3.Dir()); n != at[name] {
				at[name], calm = n, 0
			}
		}
	}
	return at
}

func TestChangingOneByteMovesLittle(t *testing.T) {
	s := newScene(t, bed.Config{})
	t.Log(s.run(s.tool + " fill /mnt/v/big 1024 one"))
	before := s.settled()
	links := map[string]uint64{}
	count := func(name string) uint64 {
		rx, tx, err := s.bed.Stage.LinkBytes(s.ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		return rx + tx
	}
	for _, name := range s.bed.Names() {
		links[name] = count(name)
	}
	begin := time.Now()
	s.run("printf x | dd of=/mnt/v/big bs=1 seek=777777777 conv=notrunc,fsync status=none")
	time.Sleep(3 * time.Second) // for what is still to travel; what the registry says all the time is counted too
	for _, name := range s.bed.Names() {
		n := count(name) - links[name]
		t.Logf("link of %s: %d bytes in %.1f s, the registry's included", name, n, time.Since(begin).Seconds())
		if n >= 1<<20 {
			t.Errorf("one byte changed, and %d bytes crossed the link of %s", n, name)
		}
	}
	for name, n := range s.settled() {
		t.Logf("store of %s: %d bytes", name, n-before[name])
		if n-before[name] >= 1<<20 {
			t.Errorf("one byte changed, and the store of %s got %d bytes", name, n-before[name])
		}
		if n < 1<<30 {
			t.Errorf("store of %s has %d bytes of a file of 1 GiB", name, n)
		}
	}
}

func TestAFileThreeTimesThePool(t *testing.T) {
	s := newScene(t, bed.Config{PoolSize: map[string]string{"a": "256Mi", "b": "256Mi", "c": "256Mi"}})
	s.run(s.tool + " fill /mnt/v/big 768 three")
	t.Log(s.run("echo 3 > /proc/sys/vm/drop_caches; " + s.tool + " check /mnt/v/big 768 three"))
	for _, name := range s.bed.Names() {
		t.Logf("pool of %s: %d MiB, store: %d MiB", name, size(t, s.bed.Site(name).PoolDir())>>20, size(t, s.bed.Site(name).S3.Dir())>>20)
	}
}

// sniffer looks for words in everything that crosses a site's wide-area link.
type sniffer struct {
	fd    int
	words [][]byte
	done  sync.WaitGroup

	mu    sync.Mutex
	found []string
	bytes int64
}

func newSniffer(t *testing.T, site *stage.Site, words [][]byte) *sniffer {
	t.Helper()
	x := &sniffer{words: words}
	err := site.Do(func() (err error) {
		all := int(uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8)
		if x.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
			return err
		}
		index, err := interfaceIndex("wan0")
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(x.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
			return err
		}
		if err := unix.SetsockoptTimeval(x.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200000}); err != nil {
			return err
		}
		return unix.Bind(x.fd, &unix.SockaddrLinklayer{Protocol: uint16(all), Ifindex: index})
	})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// listen reads until stop is closed.
func (x *sniffer) listen(stop <-chan struct{}) {
	x.done.Go(func() {
		p := make([]byte, 1<<16)
		for {
			select {
			case <-stop:
				return
			default:
			}
			n, _, err := unix.Recvfrom(x.fd, p, 0)
			if err != nil {
				continue // the time limit
			}
			x.mu.Lock()
			x.bytes += int64(n)
			for _, w := range x.words {
				if bytes.Contains(p[:n], w) {
					x.found = append(x.found, string(w))
				}
			}
			x.mu.Unlock()
		}
	})
}

func interfaceIndex(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }() // only asked
	req, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req); err != nil {
		return 0, err
	}
	return int(req.Uint32()), nil
}

func TestNoPlaintextAnywhere(t *testing.T) {
	s := newScene(t, bed.Config{})
	words := [][]byte{[]byte("KnownFileNameXyzzy"), []byte("KnownContentPlugh"), []byte("KnownXattrNameFrotz"), []byte("KnownXattrValueQuux"), []byte("KnownLinkTargetBlorb")}
	var sniffers []*sniffer
	stop := make(chan struct{})
	for _, name := range s.bed.Names() {
		x := newSniffer(t, s.bed.Site(name).Site, words)
		x.listen(stop)
		sniffers = append(sniffers, x)
	}
	s.run(`set -e; cd /mnt/v; mkdir KnownFileNameXyzzy; yes KnownContentPlugh | head -c 3000000 > KnownFileNameXyzzy/KnownFileNameXyzzy
setfattr -n user.KnownXattrNameFrotz -v KnownXattrValueQuux KnownFileNameXyzzy; ln -s KnownLinkTargetBlorb link; sync`)
	s.settled()
	close(stop)
	for i, x := range sniffers {
		x.done.Wait()
		_ = unix.Close(x.fd) // it has been read
		t.Logf("link of %s: %d bytes looked at", s.bed.Names()[i], x.bytes)
		if len(x.found) > 0 {
			t.Errorf("on the link of %s in the clear: %v", s.bed.Names()[i], x.found)
		}
		if x.bytes == 0 {
			t.Errorf("nothing crossed the link of %s", s.bed.Names()[i])
		}
	}
	for _, name := range s.bed.Names() {
		for _, dir := range []string{s.bed.Site(name).S3.Dir(), s.bed.Site(name).PoolDir()} {
			scanned := scan(t, dir, words)
			t.Logf("%s: %d bytes looked at", dir, scanned)
			if scanned == 0 {
				t.Errorf("%s is empty", dir)
			}
		}
	}
	// The check can fail: the words are in what the guest sees.
	if out := s.run("ls -R /mnt/v; head -c 100 /mnt/v/KnownFileNameXyzzy/KnownFileNameXyzzy; getfattr -d /mnt/v/KnownFileNameXyzzy 2>/dev/null"); !strings.Contains(out, "KnownContentPlugh") ||
		!strings.Contains(out, "KnownXattrValueQuux") {
		t.Errorf("the guest reads %q", out)
	}
}

// scan looks for words in all files below dir, their names included, and returns how many bytes it read.
func scan(t *testing.T, dir string, words [][]byte) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n += int64(len(b))
		for _, w := range words {
			if bytes.Contains(b, w) || strings.Contains(path, string(w)) {
				t.Errorf("%s holds %q in the clear", path, w)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
