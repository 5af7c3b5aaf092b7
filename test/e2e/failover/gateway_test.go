// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Loops that end when the file $1 exists, or with an error.
const (
	tarLoop = `set -e
n=0
while [ ! -e $1 ]; do
	mkdir /mnt/v/tar$n
	tar -C /mnt/v/tar$n -xf /x/in.tar
	tar -C /mnt/v/tar$n -df /x/in.tar
	rm -r /mnt/v/tar$n
	n=$((n + 1))
done
echo $n trees unpacked, compared and removed`

	fioLoop = `set -e
mkdir /mnt/v/fio
n=0
while [ ! -e $1 ]; do
	fio --name=f$n --directory=/mnt/v/fio --ioengine=psync --rw=randwrite --bs=16k --size=6m --fsync=4 \
		--verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0 --output=/x/fio.out --unlink=1
	n=$((n + 1))
done
echo $n files of 6 MiB written, fsynced and verified`
)

// lostState is the message of the kernel's client when it can not reclaim an open or a lock.
var lostState = regexp.MustCompile(`(?i)(nfs|lock).*(lost|reclaim.*fail|fail.*reclaim)`)

// kills is how often the gateway of the machine's own site is killed.
const kills = 5

// TestOwnGatewayIsKilledUnderLoad kills and restarts the gateway that a machine has mounted, under
// fsync'ed lines, a held lock, tar and fio.
func TestOwnGatewayIsKilledUnderLoad(t *testing.T) {
	s := newScene(t)
	root, err := exec.CommandContext(s.Ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(strings.TrimSpace(string(root)), "src")
	if out, err := exec.CommandContext(s.Ctx, "tar", "-C", tree, "-cf", filepath.Join(s.guest.Shared(), "in.tar"),
		"archive").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	for name, script := range map[string]string{"tar.sh": tarLoop, "fio.sh": fioLoop} {
		if err := os.WriteFile(filepath.Join(s.guest.Shared(), name), []byte(script), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mounted := s.guest.Do("grep /mnt/v /proc/self/mountinfo")
	lines := s.lines()
	locked := s.guest.Begin("lock", s.Tool+" lock /mnt/v/locked /x/locked")
	tar := s.guest.Begin("tar", "bash /x/tar.sh")
	fio := s.guest.Begin("fio", "bash /x/fio.sh")
	for i := range kills {
		// Every other time it is also the volume's home.
		s.healthy()
		if i%2 == 1 {
			s.move("b")
			if st := s.whole(); st.HomeSite != "b" {
				t.Fatalf("home is %s after the move to b", st.HomeSite)
			}
		}
		time.Sleep(2 * time.Second) // under load
		s.Bed.Site("b").Gateway().Kill()
		if err := s.Bed.Site("b").StartGateway(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // the client notices and reclaims under load
	}
	tar.Finish(s.Ctx)
	fio.Finish(s.Ctx)
	locked.Finish(s.Ctx)
	s.finishLines(lines)
	if now := s.guest.Do("grep /mnt/v /proc/self/mountinfo"); now != mounted {
		t.Errorf("mounted is %q, and was %q", now, mounted)
	}
	console, err := os.ReadFile(s.guest.Console())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range strings.Split(string(console), "\n") {
		if lostState.MatchString(l) {
			t.Errorf("the kernel says: %s", l)
		}
	}
}
