// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/weir-storage/weir/test/e2e/kube"
)

// pooled is about CachePools. That of c is ZFS, the others are folders.
func pooled() {
	condition := func(site, kind string) string {
		return kubectl(site, "get", "cachepool/"+site+"-0", "-o", fmt.Sprintf("jsonpath={.status.conditions[?(@.type==%q)].status}", kind))
	}
	It("says how a folder is", func() {
		Eventually(condition).WithArguments("a", "Ready").WithTimeout(hang).Should(Equal("True"))
		Expect(condition("a", "Healthy")).To(Equal("True"))
		Expect(condition("a", "NearlyFull")).NotTo(BeEmpty())
		Expect(kubectl("a", "get", "cachepool/a-0", "-o", "jsonpath={.status.limit}")).To(Equal("3Gi"))
	})
	It("says how ZFS is, and what is wrong with it", func() {
		Eventually(condition).WithArguments("c", "Ready").WithTimeout(hang).Should(Equal("True"))
		Expect(kubectl("c", "get", "cachepools", "-o", "wide")).To(And(ContainSubstring("ONLINE"), ContainSubstring("tank/weir")))
		Expect(kubectl("c", "get", "cachepool/c-0", "-o", "jsonpath={.status.classes[*].class}")).To(Equal("Data Log Cache"))
		Eventually(condition).WithArguments("c", "SlogMissing").WithTimeout(hang).Should(Equal("False"))

		host := f.Site("c").HostNode()
		_, err := host.Output(bounded(), "zpool remove tank "+kube.Disks.Log)
		Expect(err).NotTo(HaveOccurred())
		since := time.Now()
		Eventually(condition).WithArguments("c", "SlogMissing").WithTimeout(hang).Should(Equal("True"))
		GinkgoWriter.Printf("that the log device is gone was told after %v\n", time.Since(since).Round(100*time.Millisecond))
		Expect(kubectl("c", "get", "cachepool/c-0", "-o", "jsonpath={.status.conditions[?(@.type==\"Ready\")].message}")).To(And(
			ContainSubstring("spec.zfs.devices.log has 1, and ZFS pool tank has 0"), ContainSubstring("zpool add tank log")))
		_, err = host.Output(bounded(), "zpool add -f tank log "+kube.Disks.Log)
		Expect(err).NotTo(HaveOccurred())
		Eventually(condition).WithArguments("c", "SlogMissing").WithTimeout(hang).Should(Equal("False"))
		Eventually(condition).WithArguments("c", "Ready").WithTimeout(hang).Should(Equal("True"))
	})
}
