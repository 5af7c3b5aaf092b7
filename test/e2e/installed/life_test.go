// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const policy = `apiVersion: storage.weir.dev/v1alpha1
kind: VolumePolicy
metadata: {name: safe}
spec: {replication: {copies: 2}, durability: {acknowledge: Sites, sites: 2}}
---
`

// shared makes a volume at a, imported at b, and a pod at each that uses it: at-a and at-b.
func shared() {
	for _, site := range []string{"a", "b", "c"} {
		apply(site, policy)
	}
	apply("a", volume("shared", "default", "grants: [{site: b, namespace: default}]", "home: {preferredSites: [a]}",
		"replication: {copies: 3}"))
	ready("a", "gv/shared")
	apply("a", pod("at-a", "shared", "default"))
	apply("b", imports("from-a", "default", "default.shared"))
	ready("b", "gv/from-a")
	apply("b", pod("at-b", "from-a", "default"))
	ready("a", "pod/at-a")
	ready("b", "pod/at-b")
}

// volumes are what people do with them.
func volumes() {
	It("is a mount of NFS, and what one site writes the other reads", func() {
		mounts := exec("a", "at-a", "echo hello from a > /data/greeting; sync; grep ' /data ' /proc/mounts")
		figure("%s", mounts)
		Expect(mounts).To(And(ContainSubstring(" nfs4 "), ContainSubstring("vers=4.")))
		Expect(exec("b", "at-b", "cat /data/greeting; echo hello from b > /data/answer; sync")).To(Equal("hello from a"))
		Expect(exec("a", "at-a", "cat /data/answer")).To(Equal("hello from b"))
		show()
	})

	It("is made by csi-provisioner for a claim, grows in use, and goes", func() {
		apply("a", claim("dynamic", "ReadWriteMany")+pod("of-class", "dynamic", "default"))
		ready("a", "pod/of-class")
		exec("a", "of-class", "echo kept > /data/f; sync")
		pv := kubectl("a", "get", "pvc/dynamic", "-o", "jsonpath={.spec.volumeName}")
		handle := kubectl("a", "get", "pv/"+pv, "-o", "jsonpath={.spec.csi.volumeHandle}")
		kubectl("a", "patch", "pvc/dynamic", "-p", `{"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`)
		kubectl("a", "wait", "--for=jsonpath={.status.capacity.storage}=1Gi", "--timeout=60s", "pvc/dynamic")
		Expect(exec("a", "of-class", "df -P -m /data | tail -n 1 | awk '{print $2}'; cat /data/f")).
			To(And(HavePrefix("1024"), HaveSuffix("kept")))
		kubectl("a", "delete", "pod/of-class", "--timeout=60s")
		kubectl("a", "delete", "pvc/dynamic", "--timeout=60s")
		kubectl("a", "wait", "--for=delete", "--timeout=60s", "pv/"+pv, "gvc/"+strings.TrimPrefix(handle, Federation+"/"))
	})

	It("gets another copy while pods use it", func() {
		apply("a", volume("raised", "default")+pod("raises", "raised", "default"))
		ready("a", "pod/raises")
		exec("a", "raises", "echo before > /data/f; sync")
		kubectl("a", "patch", "gv/raised", "--type=merge", "-p", `{"spec":{"replication":{"copies":3}}}`)
		kubectl("a", "wait", "--for=jsonpath={.status.copies}=3/3", "--timeout=100s", "gv/raised")
		Expect(exec("a", "raises", "echo after >> /data/f; sync; cat /data/f")).To(Equal("before\nafter"))
		discard("a", "pod/raises", "gv/raised")
	})
}

// claim is a manifest of a claim of the chart's StorageClass.
func claim(name, mode string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, namespace: default}
spec: {accessModes: [%s], storageClassName: weir, resources: {requests: {storage: 512Mi}}}
---
`, name, mode)
}
