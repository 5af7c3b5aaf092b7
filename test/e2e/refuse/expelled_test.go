// SPDX-License-Identifier: Apache-2.0

package refuse

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-storage/weir/test/e2e/bed"
)

// TestExpelledFromOneVolume ends a machine's right to one of its two volumes while it writes to
// both. That volume's writer ends with an error. The other volume, which the same client of the
// kernel uses, goes on with its locks, and with those that it gets afterwards.
func TestExpelledFromOneVolume(t *testing.T) {
	s := bed.NewScene(t, bed.Config{}, bed.Manifest("v", 2, "a"))
	if err := s.Bed.Create(s.Ctx, "a", bed.Manifest("gone", 2, "a")); err != nil {
		t.Fatal(err)
	}
	m := s.Machine("a", "wa")
	gone, err := s.Bed.Site("a").Mount(s.Ctx, m.Guest, "gone")
	if err != nil {
		t.Fatal(err)
	}
	lines := m.Begin("lines", s.Tool+" write /mnt/v/lines /x/lines")
	held := m.Begin("lock", s.Tool+" lock /mnt/v/lock /x/lock")
	m.Do("until [ -s /x/lock ] && [ -s /x/lines ]; do sleep 0.1; done")
	job, err := m.Start(s.Ctx, fmt.Sprintf("%s write %s/lines /x/gone /x/gone.stop", s.Tool, gone))
	if err != nil {
		t.Fatal(err)
	}
	m.Do("until [ -s /x/gone ]; do sleep 0.1; done")

	if out, err := s.Bed.Weir(s.Ctx, "a", "volume", "expel", "gone", "--site", "a", "--client", m.Addr()); err != nil {
		t.Fatal(out, err)
	}
	r, err := job.Wait(s.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	if r.Code == 0 || !strings.Contains(r.Stderr, "permission denied") {
		t.Errorf("the writer to the volume that was taken away ended with %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}

	again := m.Begin("again", s.Tool+" lock /mnt/v/again /x/again")
	m.Do("until [ -s /x/again ]; do sleep 0.1; done")
	m.Do("n=$(wc -l </x/lines); until [ $(wc -l </x/lines) -ge $((n + 50)) ]; do sleep 0.1; done")
	// The client checks what it lost, and nothing else.
	if said := m.Do("dmesg | grep 'NFS: .*lost' || true; awk '/TEST_STATEID:/ && $2 > 10' /proc/self/mountstats"); said != "" {
		t.Errorf("the machine's client: %s", said)
	}
	again.Finish(s.Ctx)
	held.Finish(s.Ctx)
	lines.Finish(s.Ctx)
	m.Verify("/mnt/v/lines", "/x/lines")
}
