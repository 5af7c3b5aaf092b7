// SPDX-License-Identifier: Apache-2.0

package rates

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/weir-storage/weir/test/e2e/bed"
)

// elsewhere is a volume whose only copy is at b.
const elsewhere = `apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: x}
spec:
  size: 1Gi
  replication: {copies: 1}
  durability: {acknowledge: Gateway}
  home: {preferredSites: [b]}
`

// writes is how often fio writes and fsyncs in some seconds on volume v.
const writes = "fio --name=f --directory=/mnt/v --ioengine=psync --rw=randwrite --bs=4k --size=4m --fsync=1 --numjobs=4 " +
	"--time_based --runtime=5 --group_reporting --output-format=terse --terse-version=3 2>/dev/null"

// TestStalledVolumeLeavesOthersAlone: of two volumes that a machine has mounted from one gateway,
// one loses its home. More programs wait for it than a Linux client has slots in its session. The
// other one goes on as fast as before, the list of volumes is answered, and all that waited goes on
// when the home is back.
func TestStalledVolumeLeavesOthersAlone(t *testing.T) {
	s := bed.NewScene(t, bed.Config{Sites: []string{"a", "b"}, Promise: "2s"}, bed.Manifest("v", 1, "a"))
	if err := s.Bed.Create(s.Ctx, "a", elsewhere); err != nil {
		t.Fatal(err)
	}
	guest := s.Machine("a", "wa")
	if _, err := s.Bed.Site("a").Mount(s.Ctx, guest.Guest, "x"); err != nil {
		t.Fatal(err)
	}
	guest.Do("for i in $(seq 96); do echo $i >/mnt/x/$i; done; sync -f /mnt/x")
	rate := func(when string) float64 {
		out := guest.Do(writes)
		fields := regexp.MustCompile(";").Split(out, -1)
		if len(fields) < 50 {
			t.Fatalf("fio says %q", out)
		}
		n, err := strconv.ParseFloat(fields[48], 64) // write IOPS
		if err != nil || n == 0 {
			t.Fatalf("fio says %q: %v", out, err)
		}
		t.Logf("%s: %.0f writes with fsync per second", when, n)
		return n
	}
	before := rate("before")
	s.Bed.Site("b").Gateway().Kill()
	// Half of them read what no cache has, half change names and data.
	guest.Do(`echo 3 >/proc/sys/vm/drop_caches
for i in $(seq 96); do
	if [ $((i % 2)) = 0 ]; then cat /mnt/x/$i; else echo more >>/mnt/x/$i; sync /mnt/x/$i; fi >/x/waits.$i 2>&1 &
done
sleep 3`)
	stalled := rate("while the other volume has no home")
	list := guest.Do("mkdir -p /mnt/root && mount -t nfs4 -o vers=4.2,proto=tcp,hard " + s.Bed.Site("a").Addr() +
		":/ /mnt/root && ls /mnt/root")
	if list != "v\nx" {
		t.Errorf("the volumes are %q", list)
	}
	if err := s.Bed.Site("b").StartGateway(); err != nil {
		t.Fatal(err)
	}
	if n := guest.Do(`for n in $(seq 240); do
	if [ "$(grep -c more /mnt/x/95)$(cat /mnt/x/96)" = 196 ] && ! pgrep -x cat >/dev/null && ! pgrep -x sync >/dev/null; then break; fi
	sleep 1
done
cat /mnt/x/* | grep -c more; cat /x/waits.* | grep -vc '^[0-9]*$'; true`); n != "48\n0" {
		t.Errorf("what waited: %q, want 48 that wrote and no error", n)
	}
	after := rate("after")
	if least := 0.9 * min(before, after); stalled < least {
		t.Errorf("the other volume goes on at %.0f writes per second, want at least %.0f", stalled, least)
	}
}
