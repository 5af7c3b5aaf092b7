// SPDX-License-Identifier: Apache-2.0

package refuse

import (
	"slices"
	"strings"
	"testing"

	"github.com/weir-storage/weir/test/e2e/bed"
)

// TestPoolIsFull fills the home's pool while its store is down, so that nothing can leave the pool.
// Writers wait, and status says why and what to do. When the store is back, everything goes on and
// is complete.
func TestPoolIsFull(t *testing.T) {
	lenient := strings.Replace(bed.Manifest("v", 2, "a"), "maxLag: {time: 8s}", "maxLag: {time: 1h, bytes: 100Gi}", 1)
	sizes := map[string]string{"a": "128Mi"}
	s := bed.NewScene(t, bed.Config{PoolSize: sizes}, lenient)
	m := s.Machine("a", "wa")
	m.Do(s.Tool + " fill /mnt/v/before 16 before")
	a := s.Bed.Site("a")
	a.S3.Proc().Kill()
	job, err := m.Start(s.Ctx, s.Tool+" fill /mnt/v/big 256 big")
	if err != nil {
		t.Fatal(err)
	}
	st := s.Await("a", func(st bed.Status) bool { // the store is blamed once an upload has failed
		return st.State == "Degraded" && strings.Contains(st.Message, "full") && strings.Contains(st.Message, "store")
	})
	t.Logf("status says: %s", st.Message)
	wants(t, st.Message, "pool", a.PoolDir(), "pool.size", "store", "writes wait")
	if err := a.S3.Start(); err != nil {
		t.Fatal(err)
	}
	r, err := job.Wait(s.Ctx)
	if err != nil || r.Code != 0 {
		t.Fatalf("the writer failed: %v, exit code %d: %s%s", err, r.Code, r.Stdout, r.Stderr)
	}
	t.Log(m.Do("echo 3 > /proc/sys/vm/drop_caches; " + s.Tool + " check /mnt/v/before 16 before; " + s.Tool + " check /mnt/v/big 256 big"))
	s.Await("a", func(st bed.Status) bool { return st.State == "Ready" })
}

// TestMembersPoolIsFull fills a member's pool, whose store is down. Another copy takes its place,
// and writers go on. Status names the full one. It counts again when there is room.
func TestMembersPoolIsFull(t *testing.T) {
	lenient := strings.Replace(bed.Manifest("v", 2, "a"), "maxLag: {time: 8s}", "maxLag: {time: 1h, bytes: 100Gi}", 1)
	s := bed.NewScene(t, bed.Config{PoolSize: map[string]string{"b": "128Mi"}}, lenient)
	m := s.Machine("a", "wa")
	has := func(st bed.Status, gateway string) bool { return slices.Contains(st.Members, gateway) }
	if st := s.Await("a", func(st bed.Status) bool { return st.State == "Ready" && len(st.Members) == 2 }); !has(st, "gb") {
		out, err := s.Bed.Weir(s.Ctx, "a", "failover", "v", "--to", "b") // then b is one of the two
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if out, err = s.Bed.Weir(s.Ctx, "a", "failover", "v", "--to", "a"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	s.Await("a", func(st bed.Status) bool { return st.HomeSite == "a" && has(st, "gb") })
	b := s.Bed.Site("b")
	b.S3.Proc().Kill()
	t.Log(m.Do(s.Tool + " fill /mnt/v/big 300 big && echo written"))
	st := s.Await("a", func(st bed.Status) bool { return st.State == "Ready" && has(st, "gc") && !has(st, "gb") })
	said, err := s.Bed.Weir(s.Ctx, "b", "status", "v")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("status says:\n%s", said)
	wants(t, said, "v at gb: ", "full", b.PoolDir(), "store")
	if err := b.S3.Start(); err != nil {
		t.Fatal(err)
	}
	s.Await("a", func(now bed.Status) bool {
		for _, r := range now.Replicas {
			if r.Gateway == "gb" && (r.State == "Follower" || r.State == "Member") {
				return true
			}
		}
		return false
	})
	t.Logf("members are %v", st.Members)
}

// TestBothPoolsAreFull fills the pools of the home and of the only other site that could count,
// whose stores are down. Writers wait, status says why, and everything goes on when there is room.
func TestBothPoolsAreFull(t *testing.T) {
	lenient := strings.NewReplacer("maxLag: {time: 8s}", "maxLag: {time: 1h, bytes: 100Gi}", "copies: 3", "copies: 2").
		Replace(bed.Manifest("v", 2, "a"))
	s := bed.NewScene(t, bed.Config{PoolSize: map[string]string{"a": "128Mi", "b": "128Mi", "c": "128Mi"}}, lenient)
	m := s.Machine("a", "wa")
	st := s.Await("a", func(st bed.Status) bool { return st.State == "Ready" && len(st.Members) == 2 })
	var full []string
	for _, r := range st.Replicas {
		full = append(full, r.Site)
		s.Bed.Site(r.Site).S3.Proc().Kill()
	}
	job, err := m.Start(s.Ctx, s.Tool+" fill /mnt/v/big 300 big")
	if err != nil {
		t.Fatal(err)
	}
	st = s.Await("a", func(st bed.Status) bool {
		return st.State == "Degraded" && strings.Contains(st.Message, "full") && strings.Contains(st.Message, "store")
	})
	t.Logf("status says: %s", st.Message)
	wants(t, st.Message, "pool", "pool.size", "store", "wait")
	for _, site := range full {
		if err := s.Bed.Site(site).S3.Start(); err != nil {
			t.Fatal(err)
		}
	}
	r, err := job.Wait(s.Ctx)
	if err != nil || r.Code != 0 {
		t.Fatalf("the writer failed: %v, exit code %d: %s%s", err, r.Code, r.Stdout, r.Stderr)
	}
	t.Log(m.Do("echo 3 > /proc/sys/vm/drop_caches; " + s.Tool + " check /mnt/v/big 300 big"))
	s.Await("a", func(st bed.Status) bool { return st.State == "Ready" && len(st.Members) == 2 })
}
