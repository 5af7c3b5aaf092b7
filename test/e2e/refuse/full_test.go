// SPDX-License-Identifier: Apache-2.0

package refuse

import (
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
