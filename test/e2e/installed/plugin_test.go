// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// plugin is about the node plugin's own life.
func plugin() {
	It("may be restarted while volumes are used", func() {
		lines := begin("a", "at-a", "write", "restarted")
		was := kubectl("a", "get", "pods", "-n", Namespace, "-l", "app.kubernetes.io/component=csi-node", "-o", "name")
		kubectl("a", "delete", "-n", Namespace, was, "--timeout=60s")
		kubectl("a", "rollout", "status", "-n", Namespace, "daemonset/weir-csi-node", "--timeout=60s")
		lines.goesOn(20)
		took := lines.verified("restarted")
		figure("node plugin restarted: no error, longest stall %v", took)
	})
}

// killing is about the node plugin's death, and about packets that vanish.
func killing() {
	// Two sites at the same time: both take long, and neither needs the other's.
	It("may be killed in the middle of stage, publish, unpublish and unstage; and elsewhere a gateway may be a black hole for 60 s, "+
		"under fio", func() {
		together(killed, blackhole)
	})
}

// killed kills the node plugin of a's guest in the middle of each kind of call.
func killed() {
	lines := begin("a", "at-a", "write", "killed")
	mounts := func() string { return guest("a", "grep -c ' nfs4 ' /proc/mounts || true") }
	before := mounts()
	apply("a", claim("churned", "ReadWriteMany"))
	const staged, published = "/globalmount", "/volumes/kubernetes.io~csi/"
	for i, round := range []struct{ start, end string }{{staged, published}, {published, staged}} {
		By("a pod starts")
		done := arm(round.start)
		apply("a", pod("churn", "churned", "default"))
		ready("a", "pod/churn")
		Expect(done()).To(HavePrefix("killed "))
		Expect(exec("a", "churn", "echo written >> /data/f; sync; wc -l < /data/f")).To(Equal(fmt.Sprint(i + 1)))
		By("and ends")
		done = arm(round.end)
		kubectl("a", "delete", "pod/churn", "--timeout=100s")
		Expect(done()).To(HavePrefix("killed "))
		until("nothing is mounted of it any more", func() (string, bool) {
			got := mounts()
			return got, got == before
		})
		// Kubernetes restarts a plugin that died often with growing delays. A new pod starts
		// without a delay.
		kubectl("a", "delete", "pods", "-n", Namespace, "-l", "app.kubernetes.io/component=csi-node", "--timeout=60s")
	}
	kubectl("a", "delete", "pvc/churned", "--timeout=60s")
	took := lines.verified("killed")
	interrupted := guest("a", `grep -c 'csi.*error reading from server: EOF\|csi.*connection reset by peer' /x/kubelet.log || true`)
	figure("node plugin killed during stage, publish, unpublish and unstage: all succeeded when repeated (%s calls cut off); a "+
		"writer's longest stall %v",
		interrupted, took)
}

// arm makes a's guest kill the node plugin as soon as an NFS mount appears or disappears at a path
// that contains part. Then the kernel has done what the kubelet asked for, and the kubelet does not
// know it. The returned function waits for the kill and returns what the killer printed.
func arm(part string) (done func() string) {
	GinkgoHelper()
	killed := make(chan string, 1)
	node, ctx := f.Site("a").GuestNode(), bounded()
	guest("a", "rm -f /run/weir/armed")
	go func() {
		out, err := node.Output(ctx, fmt.Sprintf("%s killer %s '/bin/weir csi node' /run/weir/armed", f.Tool(), part))
		killed <- strings.TrimSpace(fmt.Sprint(out, " ", err))
	}()
	guest("a", "until [ -e /run/weir/armed ]; do sleep 0.05; done")
	return func() string { return <-killed }
}
