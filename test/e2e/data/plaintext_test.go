// SPDX-License-Identifier: Apache-2.0

package data

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-storage/weir/test/e2e/bed"
	"github.com/weir-storage/weir/test/e2e/stage"
)

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
	words := [][]byte{[]byte("KnownFileNameXyzzy"), []byte("KnownContentPlugh"), []byte("KnownXattrNameFrotz"),
		[]byte("KnownXattrValueQuux"), []byte("KnownLinkTargetBlorb")}
	var sniffers []*sniffer
	stop := make(chan struct{})
	for _, name := range s.Bed.Names() {
		x := newSniffer(t, s.Bed.Site(name).Site, words)
		x.listen(stop)
		sniffers = append(sniffers, x)
	}
	s.guest.Do(`set -e; cd /mnt/v; mkdir KnownFileNameXyzzy; yes KnownContentPlugh | head -c 3000000 > KnownFileNameXyzzy/KnownFileNameXyzzy
setfattr -n user.KnownXattrNameFrotz -v KnownXattrValueQuux KnownFileNameXyzzy; ln -s KnownLinkTargetBlorb link; sync`)
	s.settled()
	close(stop)
	for i, x := range sniffers {
		x.done.Wait()
		_ = unix.Close(x.fd) // it has been read
		t.Logf("link of %s: %d bytes looked at", s.Bed.Names()[i], x.bytes)
		if len(x.found) > 0 {
			t.Errorf("on the link of %s in the clear: %v", s.Bed.Names()[i], x.found)
		}
		if x.bytes == 0 {
			t.Errorf("nothing crossed the link of %s", s.Bed.Names()[i])
		}
	}
	for _, name := range s.Bed.Names() {
		for _, dir := range []string{s.Bed.Site(name).S3.Dir(), s.Bed.Site(name).PoolDir()} {
			scanned := scan(t, dir, words)
			t.Logf("%s: %d bytes looked at", dir, scanned)
			if scanned == 0 {
				t.Errorf("%s is empty", dir)
			}
		}
	}
	// This shows that the check can fail: the guest sees the words.
	out := s.guest.Do("ls -R /mnt/v; head -c 100 /mnt/v/KnownFileNameXyzzy/KnownFileNameXyzzy; " +
		"getfattr -d /mnt/v/KnownFileNameXyzzy 2>/dev/null")
	if !strings.Contains(out, "KnownContentPlugh") ||
		!strings.Contains(out, "KnownXattrValueQuux") {
		t.Errorf("the guest reads %q", out)
	}
}

// scan looks for words in the names and contents of all files below dir. It returns how many bytes
// it read.
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
