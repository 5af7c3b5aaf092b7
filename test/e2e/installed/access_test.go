// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// access is about who may use a volume, and how.
func access() {
	It("lets a pod that is not root write, by its fsGroup", func() {
		apply("a", claim("grouped", "ReadWriteMany")+pod("user", "grouped", "default",
			"  securityContext: {runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1000, fsGroup: 2000}\n"))
		ready("a", "pod/user")
		got := exec("a", "user", "id; mkdir /data/d; echo mine > /data/d/f; sync; stat -c '%u:%g %A' /data /data/d/f")
		figure("a pod of user 1000 with fsGroup 2000: %s", strings.ReplaceAll(got, "\n", "; "))
		Expect(got).To(And(ContainSubstring("0:2000 drwxrwsr-x"), ContainSubstring("1000:2000 -rw-r--r--")))

		By("another user, without the group, does not write")
		apply("a", pod("stranger", "grouped", "default", "  securityContext: {runAsUser: 1001, runAsGroup: 1001}\n"))
		ready("a", "pod/stranger")
		Expect(exec("a", "stranger", "cat /data/d/f; ( echo other > /data/g ) 2>&1 || true")).
			To(And(HavePrefix("mine"), ContainSubstring("Permission denied")))
		discard("a", "pod/user", "pod/stranger", "pvc/grouped")
	})

	It("keeps who may only read from writing, also on the node", func() {
		apply("a", "apiVersion: v1\nkind: Namespace\nmetadata: {name: reads}\n---\n")
		apply("b", "apiVersion: v1\nkind: Namespace\nmetadata: {name: reads}\n---\n")
		apply("a", volume("published", "reads", "grants: [{site: b, namespace: reads, access: ReadOnly}]")+
			pod("author", "published", "reads"))
		ready("a", "-n", "reads", "pod/author")
		exec("a", "reads/author", "echo written > /data/f; sync")
		apply("b", imports("published", "reads", "reads.published", "access: ReadOnly")+pod("reader", "published", "reads"))
		ready("b", "-n", "reads", "pod/reader")
		Expect(kubectl("b", "get", "pvc/published", "-n", "reads", "-o", "jsonpath={.spec.accessModes}")).To(Equal(`["ReadOnlyMany"]`))
		got := exec("b", "reads/reader",
			"cat /data/f; ( echo no > /data/f ) 2>&1 || true; touch /data/g 2>&1 || true; chmod 777 /data/f 2>&1 || true")
		figure("ReadOnlyMany: %s", strings.ReplaceAll(got, "\n", "; "))
		Expect(strings.Count(got, "Read-only file system")).To(Equal(3), got)

		By("the gateway refuses what root on the node does to its mount")
		got = guest("b", staged("reads.published")+
			`mount -o remount,rw "$m" 2>/dev/null || :; touch "$m/by-root" 2>&1 && echo written || echo refused`)
		Expect(got).To(HaveSuffix("refused"))
		Expect(exec("a", "reads/author", "ls /data; cat /data/f")).To(Equal("f\nwritten"))

		By("an import that wants to write is not granted")
		kubectl("b", "delete", "-n", "reads", "pod/reader", "gv/published", "--timeout=60s")
		apply("b", imports("published", "reads", "reads.published"))
		Expect(says("b", "gv/published", "reads", "NotGranted")).To(ContainSubstring("access: ReadOnly"))
		discard("b", "namespace/reads")
		discard("a", "namespace/reads")
	})

	It("lets one pod at a time use a claim that says ReadWriteOncePod", func() {
		apply("a", claim("one", "ReadWriteOncePod")+pod("first", "one", "default"))
		ready("a", "pod/first")
		apply("a", pod("second", "one", "default"))
		said := until("the scheduler says why the second pod waits", func() (string, bool) {
			got := kubectl("a", "get", "pod/second", "-o", `jsonpath={.status.conditions[?(@.type=="PodScheduled")].message}`)
			return got, strings.Contains(got, "ReadWriteOncePod")
		})
		figure("the scheduler: %s", said)

		By("nor does one that goes past the scheduler")
		apply("a", pod("third", "one", "default", fmt.Sprintf("  nodeName: %s\n", f.Site("a").GuestNode().Name)))
		said = until("the third pod is refused", func() (string, bool) {
			got := events("a", "default", "third")
			return got, strings.Contains(got, "one pod") || strings.Contains(got, "ReadWriteOncePod")
		})
		figure("past the scheduler: %s", said)
		Expect(kubectl("a", "get", "pod/third", "-o", "jsonpath={.status.phase}")).NotTo(Equal("Running"))

		By("the second starts when the first has ended")
		kubectl("a", "delete", "pod/third", "--timeout=60s")
		kubectl("a", "delete", "pod/first", "--timeout=60s")
		ready("a", "pod/second")
		discard("a", "pod/second", "pvc/one")
	})

	It("tells what to do when a volume asks for certificates and the nodes show none", func() {
		apply("a", volume("sealed", "default"))
		ready("a", "gv/sealed")
		required := func(is string) {
			out, err := f.Person(bounded(), "a", "a", "volume", "clients", "default.sealed", "--site", "a", "--certificates", is)
			Expect(err).NotTo(HaveOccurred(), out)
		}
		required("Required")
		apply("a", pod("bare", "sealed", "default"))
		said := until("the pod is refused", func() (string, bool) {
			got := events("a", "default", "bare")
			return got, strings.Contains(got, "csi.node.tls")
		})
		figure("in the clear: %s", said)
		required("None")
		ready("a", "pod/bare")
		discard("a", "pod/bare", "gv/sealed")
	})

	It("keeps a pod of another namespace from the volume, also with a PersistentVolume made by hand", func() {
		handle := kubectl("a", "get", "pv", "-l", "storage.weir.dev/volume", "-o", "jsonpath={.items[0].spec.csi.volumeHandle}")
		kubectl("a", "create", "namespace", "stranger")
		apply("a", fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: by-hand}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  persistentVolumeReclaimPolicy: Retain
  csi: {driver: csi.weir.dev, volumeHandle: %q}
  claimRef: {namespace: stranger, name: stolen}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: stolen, namespace: stranger}
spec: {accessModes: [ReadWriteMany], storageClassName: "", volumeName: by-hand, resources: {requests: {storage: 1Gi}}}
---
`, handle)+pod("thief", "stolen", "stranger"))
		said := until("the thief is refused", func() (string, bool) {
			got := events("a", "stranger", "thief")
			return got, strings.Contains(got, "FailedAttachVolume") || strings.Contains(got, "FailedMount")
		})
		figure("a PersistentVolume made by hand: %s", said)
		Expect(said).To(ContainSubstring("stranger"))
		Expect(kubectl("a", "get", "pod/thief", "-n", "stranger", "-o", "jsonpath={.status.phase}")).To(Equal("Pending"))
		discard("a", "namespace/stranger", "pv/by-hand")
	})
}

// events are those of a pod.
func events(site, namespace, pod string) string {
	GinkgoHelper()
	return kubectl(site, "get", "events", "-n", namespace, "--field-selector=involvedObject.name="+pod,
		"-o", `jsonpath={range .items[*]}{.reason}: {.message}{"\n"}{end}`)
}

// staged is a script that sets m to where a volume of the federation is staged on the node.
func staged(name string) string {
	return fmt.Sprintf("m=$(awk '$3 == \"nfs4\" && $1 ~ /:\\/%s$/ && $2 ~ /globalmount/ {print $2; exit}' /proc/mounts); [ -n \"$m\" "+
		"] || { cat /proc/mounts; exit 1; }\n", name)
}
