// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/weir-storage/weir/gateway/caching"
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
	edited()
	guest("b", "touch /tmp/fio.stop")
	var said string
	Eventually(fio, hang).Should(Receive(&said))
	Expect(said).To(HaveSuffix(" files"), "fio met an error")
	took := lines.verified("blackhole")
	figure("gateway a black hole for %v: no error of fio (%s verified) or a writer, which went on %v after it ended; its longest stall %v",
		lasted, said, recovered, took)
}

// edited changes what gateways keep of the volume, while it is written and verified at b: limit,
// reserve, memory, pins, and what ZFS does below c's pool. Each is in force at once.
func edited() {
	uuid := kubectl("a", "get", "geovolume/shared", "-o", "jsonpath={.status.volume}")
	edit := func(cache string) {
		kubectl("a", "patch", "geovolume/shared", "--type", "merge", "-p", `{"spec": {"cache": `+cache+`}}`)
	}
	kept := func(g Gomega) (v caching.Volume) {
		out, err := weir("b", "cache", "default.shared", "--site", "b", "-o", "json")
		g.Expect(err).NotTo(HaveOccurred(), out)
		var all []struct{ Volumes []caching.Volume }
		g.Expect(json.Unmarshal([]byte(out), &all)).To(Succeed())
		g.Expect(all).To(HaveLen(1))
		g.Expect(all[0].Volumes).To(HaveLen(1))
		return all[0].Volumes[0]
	}
	zfs := func(property string) string {
		out, err := f.Site("c").HostNode().Output(bounded(), "zfs get -Hp -o value "+property+" tank/weir/volumes/"+uuid)
		Expect(err).NotTo(HaveOccurred(), out)
		return strings.TrimSpace(out)
	}
	edit(`{"size": "64Mi", "reserve": "8Mi", "memory": "16Mi"}`)
	Eventually(func(g Gomega) {
		g.Expect(kept(g)).To(And(HaveField("Limit", int64(64<<20)), HaveField("Reserve", int64(8<<20))))
	}).
		WithTimeout(hang).Should(Succeed())
	edit(`{"size": "16Mi", "reserve": "1Mi", "pin": [{"path": "/fio"}], "l2arc": "None", "log": "Throughput", "arc": "Metadata"}`)
	Eventually(func(g Gomega) {
		g.Expect(kept(g)).To(And(HaveField("Limit", int64(16<<20)), HaveField("Pins", Not(BeNil()))))
	}).
		WithTimeout(hang).Should(Succeed())
	Eventually(zfs).WithArguments("secondarycache").WithTimeout(hang).Should(Equal("none"))
	Expect(zfs("primarycache")).To(Equal("metadata"))
	Expect(zfs("logbias")).To(Equal("throughput"))
	edit(`{"size": null, "reserve": null, "memory": null, "pin": null, "l2arc": "All", "log": "Latency", "arc": "All"}`)
	Eventually(func(g Gomega) { g.Expect(kept(g)).To(And(HaveField("Limit", int64(0)), HaveField("Pins", BeNil()))) }).
		WithTimeout(hang).Should(Succeed())
	Eventually(zfs).WithArguments("secondarycache").WithTimeout(hang).Should(Equal("all"))
	edit("null")
	figure("the policy of a volume was edited three times under fio, and each time was in force at once")
}
