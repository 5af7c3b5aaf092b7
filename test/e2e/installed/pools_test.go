// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// pooled is about CachePools that are folders. See package tiers for ZFS.
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
}
