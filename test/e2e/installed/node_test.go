// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// node is about what happens to a machine with pods.
func node() {
	// Two sites at the same time: both take long, and neither needs the other's.
	It("is fenced when it is detached by force: what it writes is refused; and elsewhere one may be cut off, and its pods go on", func() {
		together(fenced, cutOff)
	})

	It("may lose its power, and its pods come back with their data", func() {
		exec("b", "at-b", "echo before > /data/power; sync; echo lost > /data/unsynced")
		Expect(f.Site("b").KillGuest()).To(Succeed())
		exec("a", "at-a", "echo meanwhile >> /data/power; sync")
		Expect(f.Site("b").ReturnGuest(bounded())).To(Succeed())
		back := time.Now()
		until("the pod reads its data again", func() (string, bool) {
			got, err := f.Site("b").Exec(bounded(), "at-b", "cat", "/data/power")
			return got, err == nil && got == "before\nmeanwhile\n"
		})
		figure("node lost its power: its pod had its data %v after the node was ready", time.Since(back).Round(100*time.Millisecond))
		exec("b", "at-b", "echo after >> /data/power; sync")
		Expect(exec("a", "at-a", "cat /data/power")).To(HaveSuffix("after"))
	})
}

// cutOff takes b's guest off the network for longer than its lease, and long enough that the
// cluster considers it gone.
func cutOff() {
	lines := begin("b", "at-b", "write", "cut")
	n := f.Site("b").GuestNode()
	Expect(n.Cut(bounded())).To(Succeed())
	time.Sleep(45 * time.Second)
	Expect(n.Heal(bounded())).To(Succeed())
	kubectl("b", "wait", "--for=condition=Ready", "--timeout=100s", "node/"+n.Name)
	healed := time.Now()
	lines.goesOn(1)
	figure("node cut off for 45 s: its pod wrote on %v after the node was ready again", time.Since(healed).Round(100*time.Millisecond))
	lines.goesOn(20)
	lines.verified("cut")
}

// fenced detaches a's guest from a volume by force, while the guest is cut off from the API server.
func fenced() {
	// What its writer notes is in a folder of the node: the API server will not know the pod.
	apply("a", claim("fenced", "ReadWriteMany")+strings.NewReplacer("volumeMounts: [", "volumeMounts: [{name: notes, mountPath: /notes}, ",
		"volumes: [", "volumes: [{name: notes, emptyDir: {}}, ").Replace(pod("fenced", "fenced", "default")))
	ready("a", "pod/fenced")
	pv := kubectl("a", "get", "pvc/fenced", "-o", "jsonpath={.spec.volumeName}")
	content := strings.TrimPrefix(kubectl("a", "get", "pv/"+pv, "-o", "jsonpath={.spec.csi.volumeHandle}"), Federation+"/")
	volume := kubectl("a", "get", "gvc/"+content, "-o", "jsonpath={.spec.federationName}")
	notes := "/var/lib/kubelet/pods/" + kubectl("a", "get", "pod/fenced", "-o", "jsonpath={.metadata.uid}") +
		"/volumes/kubernetes.io~empty-dir/notes/"
	exec("a", "fenced", "setsid sh -c 'guesttool write /data/lines /notes/record /notes/stop >/notes/said 2>&1' >/dev/null 2>&1 &")
	record := func() string { return guest("a", "wc -l <"+notes+"record || echo none") }
	held := begin("a", "at-a", "lock", "fence-lock") // of another volume, by the same client
	until("it writes", func() (string, bool) { got := record(); return got, got != "none" && got != "0" })
	name := f.Site("a").GuestNode().Name
	// Packets between the node and the API server are dropped: no connection is refused.
	const rules = "/run/weir/bin/iptables %[1]s OUTPUT -p tcp --dport 6443 -j DROP; /run/weir/bin/iptables %[1]s INPUT -p tcp " +
		"--sport 6443 -j DROP"
	guest("a", fmt.Sprintf(rules, "-I"))
	DeferCleanup(func() { // it fails when all went well: then it was done already
		_, _ = f.Site("a").GuestNode().Output(bounded(), fmt.Sprintf(rules, "-D"))
		_, _ = try("a", "taint", "node", name, "node.kubernetes.io/out-of-service-")
	})
	before := record()
	until("it writes on, cut off from the API server", func() (string, bool) { got := record(); return got, got != before })
	kubectl("a", "delete", "pod/fenced", "--force", "--grace-period=0")
	kubectl("a", "taint", "node", name, "node.kubernetes.io/out-of-service=nodeshutdown:NoSchedule")
	began := time.Now()
	until("it is detached", func() (string, bool) {
		got := kubectl("a", "get", "volumeattachments", "-o", "jsonpath={.items[*].spec.source.persistentVolumeName}")
		return got, !strings.Contains(got, pv)
	})
	detached := time.Since(began).Round(100 * time.Millisecond)
	fenced := record()
	said := until("the writer meets an error", func() (string, bool) {
		got := guest("a", "cat "+notes+"said")
		return got, got != ""
	})
	Expect(record()).To(Equal(fenced), "it noted lines after it was fenced")
	got := guest("a", staged(volume)+`timeout 60 sh -c 'echo evil > "$0/evil"' "$m" 2>&1 && echo written || echo refused`)
	figure("detached by force after %v: the writer: %s; root on the node: %s", detached, said, strings.ReplaceAll(got, "\n", ": "))
	Expect(got).To(HaveSuffix("refused"))

	By("the node's other volume is not touched: its locks are held, and its client does not look after all its state")
	guest("a", fmt.Sprintf(rules, "-D"))
	kubectl("a", "wait", "--for=condition=Ready", "--timeout=100s", "node/"+name)
	held.finish()
	tested := func() (n int) {
		GinkgoHelper()
		_, err := fmt.Sscan(guest("a",
			"awk '/^device/ {on = $2 ~ /:.default.shared$/} on && /TEST_STATEID:/ {print $2; exit}' /proc/self/mountstats"), &n)
		Expect(err).NotTo(HaveOccurred())
		return n
	}
	other, locked := begin("a", "at-a", "write", "fence-other"), begin("a", "at-a", "lock", "fence-again")
	first := tested()
	other.goesOn(40)
	Expect(tested()-first).To(BeNumerically("<", 10), "stateids tested while 40 lines were written")
	locked.finish()
	other.verified("fence-other")

	By("the volume is used again, and has what was acknowledged")
	kubectl("a", "taint", "node", name, "node.kubernetes.io/out-of-service-")
	apply("a", pod("again", "fenced", "default"))
	ready("a", "pod/again")
	Expect(exec("a", "again", "ls /data")).To(Equal("lines"))
	acknowledged, err := strconv.Atoi(fenced)
	Expect(err).NotTo(HaveOccurred())
	there, err := strconv.Atoi(exec("a", "again", "wc -l </data/lines"))
	Expect(err).NotTo(HaveOccurred())
	Expect(there).To(BeNumerically(">=", acknowledged), "lines that were acknowledged before the fence")
	discard("a", "pod/again", "pvc/fenced")
}
