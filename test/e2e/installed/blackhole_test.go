// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// blackhole drops all packets between b's guest and its gateway for a minute. No connection is
// refused or reset: they only fall silent.
func blackhole() {
	lines := begin("b", "at-b", "write", "blackhole")
	dir := guest("b", staged("default.shared")+`mkdir -p "$m/fio"; echo "$m"`)
	node := f.Site("b").GuestNode()
	ctx, cancel := context.WithTimeout(context.Background(), 3*hang)
	defer cancel()
	fio := make(chan string, 1)
	guest("b", "rm -f /tmp/fio.stop")
	go func() {
		out, err := node.Output(ctx, fmt.Sprintf(`n=0
while [ ! -e /tmp/fio.stop ]; do
	fio --name=f$n --directory=%s/fio --ioengine=psync --rw=randwrite --bs=16k --size=4m --fsync=4 --verify=crc32c --do_verify=1 --verify_fatal=1 \
		--verify_state_save=0 --output=/tmp/fio.out --unlink=1 || { cat /tmp/fio.out; exit 1; }
	n=$((n + 1))
done
echo $n files`, dir))
		if err != nil {
			out = fmt.Sprint(err, ": ", out)
		}
		fio <- strings.TrimSpace(out)
	}()
	const rules = "/run/weir/bin/iptables %[1]s OUTPUT -p tcp --dport 12049 -j DROP; /run/weir/bin/iptables %[1]s INPUT -p tcp " +
		"--sport 12049 -j DROP"
	DeferCleanup(func() { // it fails when all went well: then it was done already
		_, _ = node.Output(bounded(), fmt.Sprintf(rules, "-D")+"; touch /tmp/fio.stop")
	})
	time.Sleep(2 * time.Second) // under load
	guest("b", fmt.Sprintf(rules, "-I"))
	before := lines.noted()
	began := time.Now()
	time.Sleep(60 * time.Second)
	Expect(lines.noted()).To(BeNumerically("<=", before+1), "what should have been cut off was not")
	guest("b", fmt.Sprintf(rules, "-D"))
	lasted, healed := time.Since(began).Round(time.Second), time.Now()
	lines.goesOn(1)
	recovered := time.Since(healed).Round(100 * time.Millisecond)
	lines.goesOn(20)
	guest("b", "touch /tmp/fio.stop")
	var said string
	Eventually(fio, hang).Should(Receive(&said))
	Expect(said).To(HaveSuffix(" files"), "fio met an error")
	took := lines.verified("blackhole")
	figure("gateway a black hole for %v: no error of fio (%s verified) or a writer, which went on %v after it ended; its longest stall %v",
		lasted, said, recovered, took)
}
