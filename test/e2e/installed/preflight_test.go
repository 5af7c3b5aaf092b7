// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// preflight runs `weir preflight` on real nodes, as before an install.
func preflight() {
	It("is judged by weir preflight, node by node", func() {
		key, config := filepath.Join(f.dir, "store-key"), filepath.Join(f.dir, "preflight.yaml")
		Expect(os.WriteFile(key, []byte(secretKey), 0o600)).To(Succeed())
		var endpoints []string
		for _, name := range f.Names() {
			endpoints = append(endpoints, fmt.Sprintf("%q", "https://"+f.Site(name).Addr()+":2379"))
		}
		Expect(os.WriteFile(config, fmt.Appendf(nil, `federation: %s
organization: org-a
site: a
gateway: a-0
listen: {grpc: ":7001", nfs: ":12049"}
advertise: {grpc: "%s:7001", nfs: "%[2]s:2049"}
registry: {endpoints: [%[3]s]}
tls: {ca: %s, cert: %s, key: %s}
siteKey: /nowhere/site.key
pool: {path: /var/lib/weir, size: 1Gi}
store: {endpoint: %q, bucket: weir, accessKey: %s, secretKeyFile: %s}
`, Federation, f.Site("a").Addr(), strings.Join(endpoints, ", "), f.trust("a"), f.file("a", "a-0.crt"), f.file("a", "a-0.key"),
			f.sites["a"].s3.Endpoint(), accessKey, key), 0o600)).To(Succeed())
		program, err := f.Weir(bounded())
		Expect(err).NotTo(HaveOccurred())
		command := fmt.Sprintf("%s preflight --config %s --kubeconfig %s 2>&1", program, config, f.Site("a").Kubeconfig())

		By("a node with an NFS client, where nothing listens yet")
		got, err := f.Site("a").GuestNode().Output(bounded(), command)
		GinkgoWriter.Println(got)
		Expect(err).NotTo(HaveOccurred(), got)
		Expect(got).NotTo(ContainSubstring("FAIL"))
		for _, check := range []string{"NFSv4 is there", "registry", "store", "gateway b-0 at b", "port listen.grpc", "certificate",
			"clock", "cluster"} {
			Expect(got).To(ContainSubstring(check))
		}

		By("a node without, where the gateway runs already")
		got, err = f.Site("a").HostNode().Output(bounded(), command)
		GinkgoWriter.Println(got)
		Expect(err).To(HaveOccurred())
		Expect(got).To(And(MatchRegexp(`FAIL +kernel NFS client`), ContainSubstring("nfsv4"), MatchRegexp(`FAIL +port listen.grpc`),
			ContainSubstring("ss -ltnp")))
	})
}
