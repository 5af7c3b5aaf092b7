// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/weir-storage/weir/test/e2e/bed"
)

// sealed is about a site whose key a KMS plugin seals. The site stays so for the specs after it.
func sealed() {
	It("takes the key over from its Secret, and opens its volumes with the plugin alone", func() {
		const site, dir = "c", "/var/lib/weir-kms"
		program, err := f.KMS(bounded())
		Expect(err).NotTo(HaveOccurred())
		out, err := f.Site(site).HostNode().Output(bounded(), fmt.Sprintf("mkdir -p %[1]s/key %[1]s/run && chown 65532:65532 %[1]s/key && "+
			"(setsid %[2]s %[1]s/run/kms.sock one >%[1]s/log 2>&1 </dev/null &) && until [ -S %[1]s/run/kms.sock ]; do sleep 0.1; done",
			dir, program))
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(kubectl("a", "get", "gv/shared", "-o", "jsonpath={.status.copies}")).To(Equal("3/3"))
		before := kubectl(site, "get", "secret/weir-site-key", "-n", Namespace, "-o", `jsonpath={.data.site\.key}`)

		Expect(f.Set(bounded(), site, "--set", "siteKey.kms.socket="+dir+"/run/kms.sock,siteKey.kms.hostPath="+dir+"/key")).To(Succeed())
		key, err := weir(site, "gateway", "sealed-key")
		Expect(err).NotTo(HaveOccurred(), key)
		Expect(key).To(ContainSubstring(`"keyID":"one"`))
		Expect(key).NotTo(ContainSubstring(strings.TrimRight(before, "=")))

		By("without the Secret the gateway starts again, and its copies open")
		kubectl(site, "delete", "secret/weir-site-key", "-n", Namespace)
		kubectl(site, "delete", "pod/weir-gateway-0", "-n", Namespace, "--timeout=90s")
		kubectl(site, "wait", "--for=condition=Ready", "--timeout=150s", "-n", Namespace, "pod/weir-gateway-0")
		exec("a", "at-a", "echo sealed >/data/sealed; sync")
		until("the copy there has what was written since", func() (string, bool) {
			out, err := weir("a", "status", "default.shared", "-o", "json")
			if err != nil {
				return err.Error(), false
			}
			var r bed.Report
			Expect(json.Unmarshal([]byte(out), &r)).To(Succeed(), out)
			for _, x := range r.Volumes[0].Replicas {
				if x.Site == site && (x.State == "Follower" || x.State == "Member") && x.LagBytes != nil && *x.LagBytes == 0 {
					return "", true
				}
			}
			return out, false
		})
		again, err := weir(site, "gateway", "sealed-key")
		Expect(err).NotTo(HaveOccurred(), again)
		Expect(again).To(Equal(key))
	})
}
