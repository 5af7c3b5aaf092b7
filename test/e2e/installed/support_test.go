// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// unpack returns the files of a .tar.gz.
func unpack(path string) map[string]string {
	GinkgoHelper()
	text, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	z, err := gzip.NewReader(bytes.NewReader(text))
	Expect(err).NotTo(HaveOccurred())
	out := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		Expect(err).NotTo(HaveOccurred())
		file, err := io.ReadAll(r)
		Expect(err).NotTo(HaveOccurred())
		_, name, _ := strings.Cut(h.Name, "/")
		out[name] = string(file)
	}
}

// secrets are the values of all Secrets of the chart at a site that are not public.
func secrets(site string) (out []string) {
	GinkgoHelper()
	var list struct {
		Items []struct {
			Data map[string][]byte `json:"data"`
		} `json:"items"`
	}
	Expect(json.Unmarshal([]byte(kubectl(site, "get", "secrets", "-n", Namespace, "-o", "json")), &list)).To(Succeed())
	for _, s := range list.Items {
		for name, value := range s.Data {
			if name != "ca.crt" && name != "tls.crt" && name != "release" && len(value) > 7 {
				out = append(out, strings.TrimSpace(string(value)))
			}
		}
	}
	return out
}

// forms are the ways in which a file may have a secret: as it is, in JSON, in hex, and in base64,
// whose last characters depend on what comes next.
func forms(secret string) []string {
	quoted, err := json.Marshal(secret)
	Expect(err).NotTo(HaveOccurred())
	whole := []byte(secret[:len(secret)/3*3])
	return []string{secret, strings.Trim(string(quoted), `"`), hex.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString(whole),
		base64.URLEncoding.EncodeToString(whole)}
}

// supported is about what people look at when something is slow or wrong.
func supported() {
	It("shows what clients do, live", func() {
		lines := begin("a", "at-a", "write", "top")
		said, err := weir("a", "top", "--interval", "3s", "--count", "1", "-o", "json")
		Expect(err).NotTo(HaveOccurred())
		lines.finish()
		var got struct {
			Volumes []struct {
				Volume, Home    string
				Lag             *float64
				Writes, Commits float64
			}
			Clients []struct {
				Client, Gateway, Volume string
				Writes                  float64
			}
			Gateways []struct{ Gateway, Problem string }
		}
		Expect(json.Unmarshal([]byte(said), &got)).To(Succeed(), said)
		Expect(got.Volumes).NotTo(BeEmpty())
		Expect(got.Volumes[0].Volume).To(Equal("default.shared"), said)
		Expect(got.Volumes[0].Writes).To(BeNumerically(">", 1), said)
		Expect(got.Volumes[0].Lag).NotTo(BeNil(), said)
		Expect(got.Clients).NotTo(BeEmpty())
		Expect(got.Clients[0].Client).To(Equal(f.Site("a").GuestNode().Addr), said)
		figure("%s", kubectl("a", "exec", "-n", Namespace, "weir-gateway-0", "--", "weir", "top", "--count", "1", "--rows", "3"))
	})

	It("gives away no secret in a bundle for support", func() {
		dir := GinkgoT().TempDir()
		path := filepath.Join(dir, "bundle.tar.gz")
		program, err := f.Weir(bounded())
		Expect(err).NotTo(HaveOccurred())
		said, err := f.Site("a").HostNode().Output(bounded(), fmt.Sprintf("%s support-bundle --file %s --registry https://%s:2379 "+
			"--ca %s --cert %s --key %s --kubeconfig %s --namespace %s 2>&1", program, path, f.Site("a").Addr(), f.trust("a"),
			f.file("a", "a-0.crt"), f.file("a", "a-0.key"), f.Site("a").Kubeconfig(), Namespace))
		Expect(err).NotTo(HaveOccurred(), said)
		files := unpack(path)
		GinkgoWriter.Println(files["bundle.txt"])
		for _, name := range []string{"status.json", "registry/volumes.json", "gateways/a-0/log.txt", "gateways/a-0/metrics.txt",
			"gateways/a-0/config.yaml", "gateways/a-0/goroutines.txt", "kubernetes/geovolumecontents.yaml", "kubernetes/events.yaml",
			"kubernetes/logs/weir-gateway-0/gateway.txt"} {
			Expect(files[name]).NotTo(BeEmpty(), "%s: %s", name, files["bundle.txt"])
		}
		private := secrets("a")
		Expect(private).NotTo(BeEmpty())
		size := 0
		for name, text := range files {
			size += len(text)
			Expect(text).NotTo(ContainSubstring("PRIVATE KEY"), name)
			for _, value := range append(slices.Clone(private), secretKey) {
				for _, form := range forms(value) {
					Expect(strings.Contains(text, form)).To(BeFalse(), "%s has a secret", name)
				}
			}
		}
		i, err := os.Stat(path)
		Expect(err).NotTo(HaveOccurred())
		figure("a bundle for support has %d files, %d KiB, packed %d KiB; none of %d secrets is in it", len(files), size>>10, i.Size()>>10,
			len(private)+1)
		Expect(files["bundle.txt"]).To(ContainSubstring("gateways/b-0 is missing"), "site b is of another organization")
	})
}
