// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// deletion is about what people delete, edit and claim against each other.
func deletion() {
	It("keeps the data of a volume whose namespace is deleted, and gives it back", func() {
		kubectl("a", "create", "namespace", "short")
		apply("a", volume("kept", "short")+pod("writer", "kept", "short"))
		ready("a", "-n", "short", "pod/writer")
		exec("a", "short/writer", "echo precious > /data/f; sync")
		content := contentOf("a", "kept", "short")
		kubectl("a", "delete", "namespace/short", "--timeout=120s")
		ready("a", "gvc/"+content)

		kubectl("a", "create", "namespace", "short")
		By("its manifest, applied again, would be another volume of the name")
		apply("a", volume("kept", "short"))
		Expect(says("a", "gv/kept", "short", "NameTaken")).To(ContainSubstring("spec.import.volume: short.kept"))
		kubectl("a", "delete", "gv/kept", "-n", "short", "--timeout=60s")

		By("an import has it")
		apply("a", imports("kept", "short", "short.kept")+pod("reader", "kept", "short"))
		ready("a", "-n", "short", "pod/reader")
		Expect(exec("a", "short/reader", "cat /data/f")).To(Equal("precious"))

		By("its administrator grants it to another namespace")
		kubectl("a", "create", "namespace", "heir")
		kubectl("a", "patch", "gvc/"+content, "--type=merge", "-p",
			`{"spec":{"grants":[{"site":"a","namespace":"heir","access":"ReadWrite"}]}}`)
		apply("a", imports("mine", "heir", "short.kept")+pod("heir", "mine", "heir"))
		ready("a", "-n", "heir", "pod/heir")
		Expect(exec("a", "heir/heir", "cat /data/f; echo more >> /data/f; sync")).To(Equal("precious"))
		Expect(exec("a", "short/reader", "cat /data/f")).To(Equal("precious\nmore"))
		discard("a", "namespace/short", "namespace/heir")
	})

	It("keeps a volume while others import it, and tells who", func() {
		apply("a", volume("used", "default", "reclaimPolicy: Delete", "grants: [{site: b, namespace: default}]"))
		ready("a", "gv/used")
		content := contentOf("a", "used", "default")
		apply("b", imports("using", "default", "default.used")+pod("uses", "using", "default"))
		ready("b", "pod/uses")
		exec("b", "uses", "echo data > /data/f; sync")

		By("deleting an import drops that claim alone")
		kubectl("b", "delete", "pod/uses", "gv/using", "--timeout=60s")
		apply("b", imports("using", "default", "default.used")+pod("uses", "using", "default"))
		ready("b", "pod/uses")
		Expect(exec("b", "uses", "cat /data/f")).To(Equal("data"))

		By("the owner's deletion waits")
		kubectl("a", "delete", "gv/used", "--wait=false")
		said := says("a", "gv/used", "default", "InUse")
		figure("InUse: %s", said)
		Expect(said).To(ContainSubstring("b/default/using"))
		Expect(exec("b", "uses", "cat /data/f; echo still > /data/g; sync")).To(Equal("data"))
		kubectl("b", "delete", "pod/uses", "gv/using", "--timeout=60s")
		kubectl("a", "wait", "--for=delete", "--timeout=100s", "gv/used", "gvc/"+content)
	})

	It("refuses an import that was not granted", func() {
		apply("c", imports("from-a", "default", "default.shared"))
		said := says("c", "gv/from-a", "default", "NotGranted")
		figure("NotGranted: %s", said)
		Expect(said).To(ContainSubstring("{site: c, namespace: default}"))
		kubectl("c", "delete", "gv/from-a", "--timeout=60s")
	})

	It("refuses a name that another site has", func() {
		apply("b", volume("shared", "default"))
		said := says("b", "gv/shared", "default", "NameTaken")
		figure("NameTaken: %s", said)
		Expect(said).To(And(ContainSubstring("site a"), ContainSubstring("spec.import.volume: default.shared")))
		kubectl("b", "delete", "gv/shared", "--timeout=60s")
		Expect(exec("b", "at-b", "echo here > /data/here; sync; cat /data/here")).To(Equal("here"))
	})

	It("lets the owner's word count when both sites edit, and tells the other", func() {
		content := contentOf("a", "shared", "default")
		kubectl("b", "patch", "gvc/"+content, "--type=merge", "-p", `{"spec":{"size":"9Gi","policy":"mine"}}`)
		said := until("b is told", func() (string, bool) {
			got := kubectl("b", "get", "gvc/"+content, "-o",
				`jsonpath={.spec.size} {.spec.policy} {.status.conditions[?(@.type=="InSync")].reason} `+
					`{.status.conditions[?(@.type=="InSync")].message}`)
			return got, strings.HasPrefix(got, "512Mi  NotOwner") // the object is put right before its status says why
		})
		figure("an edit at the importing site: %s", said)
		Expect(said).To(And(HavePrefix("512Mi  NotOwner"), ContainSubstring("site a")))
		said = refused("b", imports("from-a", "default", "default.shared", "policy: mine"))
		figure("a policy in an import: %s", said)
		Expect(said).To(ContainSubstring("policy"))
		kubectl("a", "patch", "gv/shared", "--type=merge", "-p", `{"spec":{"size":"1Gi"}}`)
		kubectl("b", "wait", "--for=jsonpath={.spec.size}=1Gi", "--timeout=60s", "gvc/"+content)
	})

	It("keeps everything when the chart is uninstalled, and takes it up again", func() {
		lines := begin("a", "at-a", "write", "uninstall")
		at := begin("b", "at-b", "lock", "uninstall-lock")
		_, err := f.Site("b").Helm(bounded(), "uninstall", "weir", "--namespace", Namespace, "--wait", "--timeout", "2m")
		Expect(err).NotTo(HaveOccurred())
		Expect(kubectl("b", "get", "crd", "-o", "name")).To(ContainSubstring("geovolumes.storage.weir.dev"))
		Expect(kubectl("b", "get", "gv/from-a", "-o", "jsonpath={.spec.import.volume}")).To(Equal("default.shared"))
		lines.goesOn(5)
		Expect(f.Upgrade(bounded(), "b")).To(Succeed())
		ready("b", "gv/from-a")
		at.finish()
		took := lines.verified("uninstall")
		figure("b uninstalled and installed again: a writer at a had no error and stalled for %v at most, a lock at b was held throughout",
			took)
	})
}
