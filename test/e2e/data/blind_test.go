// SPDX-License-Identifier: Apache-2.0

package data

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/test/e2e/bed"
	"github.com/weir-storage/weir/test/e2e/stage"
)

// memory looks for words in the memory of a process, which it stops meanwhile. It returns how many
// bytes it read.
func memory(t *testing.T, p *stage.Proc, words [][]byte) (n int64, found map[string]int) {
	t.Helper()
	found = map[string]int{}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}()
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", p.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = maps.Close() }() // only read
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", p.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mem.Close() }() // only read
	const step = 16 << 20
	for s := bufio.NewScanner(maps); s.Scan(); {
		if strings.Contains(s.Text(), "[v") { // the kernel's own pages
			continue
		}
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(s.Text(), "%x-%x %s", &from, &to, &mode); err != nil {
			t.Fatal(err)
		}
		if mode[0] != 'r' {
			continue
		}
		for at := from; at < to; at += step - 4096 { // with an overlap
			b := make([]byte, min(step, to-at))
			got, err := mem.ReadAt(b, at)
			if err != nil && got == 0 {
				break // reserved, and not there
			}
			n += int64(got)
			for _, w := range words {
				found[string(w)] += bytes.Count(b[:got], w)
			}
		}
	}
	return n, found
}

// dataKeys returns the volume's data keys, as the site a has them.
func (s *scene) dataKeys() (out [][]byte) {
	s.T.Helper()
	must := func(err error) {
		s.T.Helper()
		if err != nil {
			s.T.Fatal(err)
		}
	}
	uuid := s.Await("a", func(bed.Status) bool { return true }).UUID
	all, err := s.Bed.Etcd.Member("a").Ctl(s.Ctx, "get", "--prefix", "/", "--keys-only")
	must(err)
	var ring federation.Keyring
	for key := range strings.Lines(all) {
		key = strings.TrimSpace(key)
		if !strings.Contains(key, uuid) || !strings.Contains(key, "/keyring") {
			continue
		}
		text, err := s.Bed.Etcd.Member("a").Ctl(s.Ctx, "get", "--print-value-only", key)
		must(err)
		var e struct{ Record json.RawMessage }
		must(json.Unmarshal([]byte(text), &e))
		must(json.Unmarshal(e.Record, &ring))
	}
	if len(ring.Wrapped) != 2 || len(ring.Wrapped["c"]) > 0 {
		s.T.Fatalf("the keyring is wrapped for %d sites", len(ring.Wrapped))
	}
	text, err := os.ReadFile(filepath.Join(s.Bed.Site("a").Dir(), "site.key"))
	must(err)
	site, err := keyring.ParseSiteKey(text)
	must(err)
	keys, err := site.UnwrapAll(ring, "a")
	must(err)
	for _, k := range keys {
		out = append(out, k[:], []byte(hex.EncodeToString(k[:])), []byte(base64.StdEncoding.EncodeToString(k[:])))
	}
	return out
}

// TestABlindHostHasNothing: in nothing that the host of a blind copy has is a name, contents, an
// attribute or a key: pool, store, the registry's data, logs, and the memory of its gateway, of
// etcd and of the gatekeeper.
func TestABlindHostHasNothing(t *testing.T) {
	manifest := strings.Replace(bed.Manifest("v", 3, "a"), "copies: 3", "copies: 3, sites: {blind: [c]}", 1)
	s := &scene{Scene: bed.NewScene(t, bed.Config{}, manifest)}
	s.guest = s.Machine("a", "wa")
	s.Await("a", func(st bed.Status) bool { return st.State == "Ready" && len(st.Members) == 3 })
	known := []string{"KnownFileNameXyzzy", "KnownContentPlugh", "KnownXattrNameFrotz", "KnownXattrValueQuux", "KnownLinkTargetBlorb"}
	s.guest.Do(`set -e; cd /mnt/v; mkdir KnownFileNameXyzzy; yes KnownContentPlugh | head -c 3000000 > KnownFileNameXyzzy/KnownFileNameXyzzy
setfattr -n user.KnownXattrNameFrotz -v KnownXattrValueQuux KnownFileNameXyzzy; ln -s KnownLinkTargetBlorb link; sync`)
	s.settled()
	// The blind copy has to lead, too.
	before := s.Await("b", func(st bed.Status) bool { return st.HomeSite == "a" })
	for _, site := range []string{"b", "a"} {
		s.Bed.Site(site).Gateway().Kill()
	}
	s.Await("c", func(st bed.Status) bool { return st.HomeSite == "c" && st.Epoch > before.Epoch })
	for _, site := range []string{"a", "b"} {
		if err := s.Bed.Site(site).StartGateway(); err != nil {
			t.Fatal(err)
		}
	}
	s.Await("b", func(st bed.Status) bool { return st.State == "Ready" && len(st.Members) == 3 && st.HomeSite != "c" })
	s.guest.Do("set -e; echo 3 > /proc/sys/vm/drop_caches; cat /mnt/v/KnownFileNameXyzzy/* > /dev/null; ls -lR /mnt/v > /dev/null; " +
		"getfattr -d /mnt/v/KnownFileNameXyzzy > /dev/null; readlink /mnt/v/link > /dev/null; touch /mnt/v/after; sync")

	words := s.dataKeys()
	for _, w := range known {
		words = append(words, []byte(w))
	}
	c := s.Bed.Site("c")
	for _, dir := range []string{c.Dir(), c.S3.Dir(), c.PoolDir(), s.Bed.Etcd.Member("c").DataDir()} {
		n := scan(t, dir, words)
		t.Logf("%s: %d bytes looked at", dir, n)
		if n == 0 {
			t.Errorf("%s is empty", dir)
		}
	}
	for what, p := range map[string]*stage.Proc{"gateway": c.Gateway(), "gatekeeper": s.Bed.Etcd.Member("c").Front(),
		"etcd": s.Bed.Etcd.Member("c").Proc()} {
		n, found := memory(t, p, words)
		t.Logf("memory of the %s: %d bytes looked at", what, n)
		for w, times := range found {
			if times > 0 {
				t.Errorf("memory of the %s has %q %d times", what, w, times)
			}
		}
		if n < 10<<20 {
			t.Errorf("only %d bytes of the memory of the %s were there", n, what)
		}
	}
	// This shows that the check can fail: who has the key has names, contents and the key in
	// memory.
	_, found := memory(t, s.Bed.Site("a").Gateway(), words)
	for _, w := range [][]byte{words[0], []byte("KnownFileNameXyzzy"), []byte("KnownContentPlugh")} {
		if found[string(w)] == 0 {
			t.Errorf("memory of the gateway at a does not have %q", w)
		}
	}
}
