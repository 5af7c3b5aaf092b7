// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// shows are the components that show metrics: their port, and a metric that each has.
var shows = []struct {
	component, metric string
	port              int
}{
	{"gateway", "weir_gateway_ready 1", 8086},
	{"operator", "weir_contents ", 8083},
	{"csi-controller", `weir_csi_call_duration_seconds_count{code="OK",method="`, 8085},
	{"csi-node", `weir_csi_call_duration_seconds_count{code="OK",method="`, 7004},
}

// scrape reads the metrics of a pod as Prometheus does: by its address, under the name of its
// Service.
func scrape(site, addr, component string, port int, token string) (int, string) {
	GinkgoHelper()
	ca, err := os.ReadFile(f.trust(site))
	Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(ca)).To(BeTrue())
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: f.Site(site).DialContext,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13,
			ServerName: fmt.Sprintf("weir-%s-metrics.%s.svc", component, Namespace)}}}
	q, err := http.NewRequestWithContext(bounded(), http.MethodGet, fmt.Sprintf("https://%s:%d/metrics", addr, port), nil)
	Expect(err).NotTo(HaveOccurred())
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := c.Do(q)
	Expect(err).NotTo(HaveOccurred(), component)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	Expect(err).NotTo(HaveOccurred(), component)
	return res.StatusCode, string(text)
}

// measured is about metrics.
func measured() {
	It("is shown to who may read it, by every component", func() {
		for _, who := range []string{"prometheus", "stranger"} {
			kubectl("a", "create", "serviceaccount", who)
		}
		kubectl("a", "create", "clusterrolebinding", "e2e-prometheus", "--clusterrole=weir-metrics-reader",
			"--serviceaccount=default:prometheus")
		reader, stranger := kubectl("a", "create", "token", "prometheus"), kubectl("a", "create", "token", "stranger")
		for _, s := range shows {
			addrs := strings.Fields(kubectl("a", "get", "pods", "-n", Namespace, "-l", "app.kubernetes.io/component="+s.component,
				"-o", "jsonpath={.items[*].status.podIP}"))
			Expect(addrs).NotTo(BeEmpty(), s.component)
			for _, addr := range addrs {
				code, text := scrape("a", addr, s.component, s.port, reader)
				Expect(code).To(Equal(http.StatusOK), "%s: %s", s.component, text)
				Expect(text).To(And(ContainSubstring("\nweir_info{"), ContainSubstring(s.metric)), s.component)
				figure("%s at %s: %d lines", s.component, addr, strings.Count(text, "\n"))
				code, _ = scrape("a", addr, s.component, s.port, stranger)
				Expect(code).To(Equal(http.StatusForbidden), s.component)
				code, _ = scrape("a", addr, s.component, s.port, "")
				Expect(code).To(Equal(http.StatusUnauthorized), s.component)
			}
		}
		kubectl("a", "delete", "clusterrolebinding/e2e-prometheus", "serviceaccount/prometheus", "serviceaccount/stranger")
	})
}
