// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// upgrade is about helm upgrade.
func upgrade() {
	It("of operator, CSI driver and gateway, site by site, is not noticed by pods", func() {
		const version = "0.1.0-next"
		Expect(f.Renew(bounded(), version)).To(Succeed())
		a, b := begin("a", "at-a", "write", "upgrade-a"), begin("b", "at-b", "write", "upgrade-b")
		held := begin("a", "at-a", "lock", "upgrade-lock")
		exec("b", "at-b", "mkdir /data/upgrade-names")
		names := begin("b", "at-b", "names", "upgrade-names")
		old := map[string]string{}
		began := time.Now()
		for _, name := range f.Names() {
			before := kubectl(name, "get", "statefulset", "-n", Namespace, "weir-gateway",
				"-o", "jsonpath={.spec.template.spec.containers[0].image}")
			Expect(before).To(HavePrefix("weir.test/weir"))
			old[name] = before
			Expect(f.Upgrade(bounded(), name)).To(Succeed())
			out, err := weir(name, "version")
			Expect(err).NotTo(HaveOccurred())
			Expect(out).To(ContainSubstring("weir " + version))
			a.goesOn(5)
			b.goesOn(5)
		}
		took := time.Since(began).Round(time.Second)
		for _, name := range f.Names() {
			left := kubectl(name, "get", "pods", "-n", Namespace, "--field-selector=status.phase=Running",
				"-o", `jsonpath={.items[*].spec.containers[?(@.image=="`+old[name]+`")].name}`)
			Expect(left).To(BeEmpty(), "what still runs %s at %s", old[name], name)
		}
		held.finish()
		names.finish()
		figure("three sites upgraded in %v: no error in pods; longest stall of a writer at a %v, at b %v", took, a.verified("upgrade-a"),
			b.verified("upgrade-b"))
		ready("a", "gv/shared")
		ready("b", "gv/from-a")
	})
}
