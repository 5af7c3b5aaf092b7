// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// madeOf is a manifest of a claim that begins with what another object has.
func madeOf(name, source string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, namespace: default}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: weir
  resources: {requests: {storage: 512Mi}}
  dataSource: %s
---
`, name, source)
}

// contentOfClaim is the name of the GeoVolumeContent of a claim of the chart's StorageClass.
func contentOfClaim(site, name string) string {
	GinkgoHelper()
	pv := kubectl(site, "get", "pvc/"+name, "-o", "jsonpath={.spec.volumeName}")
	return strings.TrimPrefix(kubectl(site, "get", "pv/"+pv, "-o", "jsonpath={.spec.csi.volumeHandle}"), Federation+"/")
}

// snapshotted is about the kinds of snapshot.storage.k8s.io.
func snapshotted() {
	const sum = "cd /data && cat words && sha256sum <big && ls dir"
	It("takes a VolumeSnapshot, restores it into a claim that another site reads, and clones a claim", func() {
		apply("a", claim("original", "ReadWriteMany")+pod("writes", "original", "default"))
		ready("a", "pod/writes")
		before := exec("a", "writes", "cd /data && mkdir dir && touch dir/f && echo before >words && "+
			"dd if=/dev/urandom of=big bs=1M count=8 2>/dev/null && sync && "+sum)

		By("the snapshot is taken while the pod goes on")
		apply("a", `apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: then, namespace: default}
spec: {source: {persistentVolumeClaimName: original}}
`)
		kubectl("a", "wait", "--for=jsonpath={.status.readyToUse}=true", "--timeout=100s", "volumesnapshot/then")
		figure("kubectl get volumesnapshots: %s", kubectl("a", "get", "volumesnapshots"))
		figure("kubectl get geovolumesnapshots: %s", kubectl("a", "get", "geovolumesnapshots"))
		after := exec("a", "writes", "cd /data && echo after >words && rm dir/f && touch dir/g && "+
			"dd if=/dev/urandom of=big bs=1M count=1 conv=notrunc 2>/dev/null && sync && "+sum)
		Expect(after).NotTo(Equal(before))

		By("one claim begins with the snapshot, another one with what the claim has now")
		apply("a", madeOf("restored", "{apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: then}")+
			madeOf("cloned", "{kind: PersistentVolumeClaim, name: original}")+
			pod("restores", "restored", "default")+pod("clones", "cloned", "default"))
		ready("a", "pod/restores", "pod/clones")
		Expect(exec("a", "restores", sum)).To(Equal(before))
		Expect(exec("a", "clones", sum)).To(Equal(after))
		Expect(exec("a", "writes", sum)).To(Equal(after))

		By("a pod at another site reads the restored claim")
		content := contentOfClaim("a", "restored")
		kubectl("a", "patch", "gvc/"+content, "--type=merge", "-p", `{"spec":{"grants":[{"site":"b","namespace":"default"}]}}`)
		name := kubectl("a", "get", "gvc/"+content, "-o", "jsonpath={.spec.federationName}")
		apply("b", imports("restored-at-a", "default", name)+pod("reads-restored", "restored-at-a", "default"))
		ready("b", "pod/reads-restored")
		Expect(exec("b", "reads-restored", sum)).To(Equal(before))

		By("what was made needs neither the snapshot nor the claim")
		kubectl("a", "delete", "pod/writes", "--timeout=60s")
		kubectl("a", "delete", "--timeout=100s", "volumesnapshot/then")
		kubectl("a", "wait", "--for=delete", "--timeout=60s", "geovolumesnapshots", "--all")
		of := contentOfClaim("a", "original")
		kubectl("a", "delete", "pvc/original", "--timeout=60s")
		kubectl("a", "wait", "--for=delete", "--timeout=60s", "gvc/"+of)
		Expect(exec("a", "restores", "echo on >>/data/words; sync; cat /data/words")).To(Equal("before\non"))
		Expect(exec("b", "reads-restored", "cat /data/words")).To(Equal("before\non"))
		discard("b", "pod/reads-restored", "gv/restored-at-a")
		discard("a", "pod/restores", "pod/clones", "pvc/restored", "pvc/cloned")
	})

	It("takes snapshots of the claims of a group together, and drops them together", func() {
		labelled := func(name string) string {
			return strings.Replace(claim(name, "ReadWriteMany"), "namespace: default}", "namespace: default, labels: {app: pair}}", 1)
		}
		apply("a", labelled("left")+labelled("right")+pod("writes-left", "left", "default")+pod("writes-right", "right", "default"))
		ready("a", "pod/writes-left", "pod/writes-right")
		exec("a", "writes-left", "echo left >/data/words; sync")
		exec("a", "writes-right", "echo right >/data/words; sync")
		apply("a", `apiVersion: groupsnapshot.storage.k8s.io/v1
kind: VolumeGroupSnapshot
metadata: {name: pair, namespace: default}
spec: {source: {selector: {matchLabels: {app: pair}}}}
`)
		kubectl("a", "wait", "--for=jsonpath={.status.readyToUse}=true", "--timeout=100s", "volumegroupsnapshot/pair")
		exec("a", "writes-left", "echo later >/data/words; sync")
		exec("a", "writes-right", "echo later >/data/words; sync")
		figure("kubectl get volumegroupsnapshots: %s", kubectl("a", "get", "volumegroupsnapshots"))
		figure("of the moments %s", kubectl("a", "get", "geovolumesnapshots", "-o",
			`jsonpath={range .items[*]}{.status.snapshot} of {.spec.source.name} at {.status.time}; {end}`))
		Expect(exec("a", "writes-left", "cat /data/.snapshots/groupsnapshot-*/words")).To(Equal("left"))
		Expect(exec("a", "writes-right", "cat /data/.snapshots/groupsnapshot-*/words")).To(Equal("right"))

		By("a claim begins with one of them")
		of := until("the VolumeSnapshot of the claim right", func() (string, bool) {
			got := kubectl("a", "get", "volumesnapshots", "-o",
				`jsonpath={.items[?(@.spec.source.persistentVolumeClaimName=="right")].metadata.name}`)
			return got, got != ""
		})
		kubectl("a", "wait", "--for=jsonpath={.status.readyToUse}=true", "--timeout=100s", "volumesnapshot/"+of)
		apply("a", madeOf("right-again", "{apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: "+of+"}")+
			pod("reads-right", "right-again", "default"))
		ready("a", "pod/reads-right")
		Expect(exec("a", "reads-right", "cat /data/words")).To(Equal("right"))

		kubectl("a", "delete", "--timeout=100s", "volumegroupsnapshot/pair")
		kubectl("a", "wait", "--for=delete", "--timeout=60s", "geovolumesnapshots", "--all")
		discard("a", "pod/writes-left", "pod/writes-right", "pod/reads-right", "pvc/left", "pvc/right", "pvc/right-again")
	})
}
