// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// leaving tests a cluster that leaves the federation. It runs last: there is no Weir at site c
// after it.
func leaving() {
	It("lets go of what it has of Weir when that is uninstalled", func() {
		kubectl("c", "create", "namespace", "leaver")
		// A copy at b: who has nothing of it is not shown it.
		apply("c", volume("left", "leaver", "replication: {copies: 2, sites: {required: [b, c]}}"))
		kubectl("c", "wait", "-n", "leaver", "--for=condition=Ready", "--timeout=150s", "gv/left")
		content := contentOf("c", "left", "leaver")
		program, err := f.Weir(bounded())
		Expect(err).NotTo(HaveOccurred())
		release := program + " site release --yes --kubeconfig " + f.Site("c").Kubeconfig() + " 2>&1"
		said, err := f.Site("c").HostNode().Output(bounded(), release)
		Expect(err).To(HaveOccurred(), said)
		Expect(said).To(ContainSubstring("the operator is installed"))

		_, err = f.Site("c").Helm(bounded(), "uninstall", "weir", "--namespace", Namespace, "--wait")
		Expect(err).NotTo(HaveOccurred())
		kubectl("c", "delete", "namespace", "leaver", "--wait=false")
		until("it says that it waits for Weir", func() (string, bool) {
			said, err := try("c", "get", "namespace/leaver", "-o",
				"jsonpath={.status.conditions[?(@.type==\"NamespaceFinalizersRemaining\")].message}")
			return said, err == nil && said != ""
		})
		began := time.Now()
		said, err = f.Site("c").HostNode().Output(bounded(), release)
		Expect(err).NotTo(HaveOccurred(), said)
		Expect(said).To(And(ContainSubstring("GeoVolume leaver/left, which is being deleted"),
			ContainSubstring("GeoVolumeContent "+content)))
		kubectl("c", "wait", "--for=delete", "--timeout=100s", "namespace/leaver")
		figure("the namespace was gone %v after `weir site release`", time.Since(began).Round(100*time.Millisecond))
		listed, err := weir("b", "volume", "list")
		Expect(err).NotTo(HaveOccurred())
		Expect(listed).To(ContainSubstring("leaver.left"), "the volume stays")
	})
}
