// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/weir-storage/weir/test/e2e/stage"
)

// prometheus is a real Prometheus at a site, which reads all components there and has the chart's
// rules.
type prometheus struct {
	site, addr string
	proc       *stage.Proc
}

// watchWith starts a Prometheus at a site. Its ServiceAccount may read metrics.
func watchWith(site string) *prometheus {
	GinkgoHelper()
	build := filepath.Join(f.Root(), "hack/tools/build")
	out, err := osexec.CommandContext(bounded(), build, "prometheus").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	bin, err := osexec.CommandContext(bounded(), build, "-p").Output()
	Expect(err).NotTo(HaveOccurred())
	kubectl(site, "create", "serviceaccount", "prometheus")
	kubectl(site, "create", "clusterrolebinding", "e2e-prometheus", "--clusterrole=weir-metrics-reader",
		"--serviceaccount=default:prometheus")
	dir := filepath.Join(f.Site(site).Dir(), "prometheus")
	Expect(os.MkdirAll(dir, 0o700)).To(Succeed())
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
		return path
	}
	token := write("token", kubectl(site, "create", "token", "prometheus"))
	rules, err := os.ReadFile(filepath.Join(f.Root(), "charts/weir/files/rules.yaml"))
	Expect(err).NotTo(HaveOccurred())
	text := fmt.Sprintf("global: {scrape_interval: 15s}\nrule_files: [%s]\nscrape_configs:\n", write("rules.yaml", string(rules)))
	for _, s := range shows { // as the chart's ServiceMonitors say
		var targets []string
		for _, ip := range strings.Fields(kubectl(site, "get", "pods", "-n", Namespace, "-l", "app.kubernetes.io/component="+s.component,
			"-o", "jsonpath={.items[*].status.podIP}")) {
			targets = append(targets, fmt.Sprintf("%q", fmt.Sprintf("%s:%d", ip, s.port)))
		}
		Expect(targets).NotTo(BeEmpty(), s.component)
		text += fmt.Sprintf(`  - job_name: weir-%[1]s-metrics
    scheme: https
    authorization: {credentials_file: %[2]s}
    tls_config: {ca_file: %[3]s, server_name: weir-%[1]s-metrics.%[4]s.svc}
    static_configs: [{targets: [%[5]s]}]
`, s.component, token, f.trust(site), Namespace, strings.Join(targets, ", "))
	}
	p := &prometheus{site: site, addr: f.Site(site).Addr() + ":9090"}
	p.proc, err = f.Site(site).Start("prometheus", f.Site(site).Command(context.Background(),
		filepath.Join(strings.TrimSpace(string(bin)), "prometheus"), "--config.file="+write("prometheus.yaml", text),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.addr))
	Expect(err).NotTo(HaveOccurred())
	until("Prometheus reads all components", func() (string, bool) {
		var got struct {
			ActiveTargets []struct{ ScrapeURL, Health, LastError string }
		}
		if err := p.ask("targets", nil, &got); err != nil {
			return err.Error(), false
		}
		for _, t := range got.ActiveTargets {
			if t.Health != "up" {
				return fmt.Sprintf("%+v", t), false
			}
		}
		return fmt.Sprint(got), len(got.ActiveTargets) >= len(shows)
	})
	return p
}

// ask reads the data of an answer of Prometheus' HTTP API.
func (p *prometheus) ask(what string, query url.Values, data any) error {
	c := http.Client{Transport: &http.Transport{DialContext: f.Site(p.site).DialContext, DisableKeepAlives: true}}
	q, err := http.NewRequestWithContext(bounded(), http.MethodGet, "http://"+p.addr+"/api/v1/"+what+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	res, err := c.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	answer := struct {
		Data  any
		Error string
	}{Data: data}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return fmt.Errorf("%s: %s", what, answer.Error)
	}
	return nil
}

// firing returns the alerts of a name that fire, as their labels.
func (p *prometheus) firing(name string) (found []map[string]string, err error) {
	var got struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	err = p.ask("alerts", nil, &got)
	for _, a := range got.Alerts {
		if a.Labels["alertname"] == name && a.State == "firing" {
			found = append(found, a.Labels)
		}
	}
	return found, err
}

// end ends it, and what it may read.
func (p *prometheus) end() {
	GinkgoHelper()
	p.proc.Kill()
	kubectl(p.site, "delete", "clusterrolebinding/e2e-prometheus", "serviceaccount/prometheus")
}

// selector is a metric of Weir in a query, with what it asks of labels.
var selector = regexp.MustCompile(`(weir_[a-z_]+)(\{[^}]*\})?`)

// queries are those of all dashboards of the chart, and the metrics of all its rules. Which labels
// a rule asks for is left out: many are there only when something is wrong.
func queries() (all []string) {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join(f.Root(), "charts/weir/files/dashboards/*.json"))
	Expect(err).NotTo(HaveOccurred())
	Expect(files).NotTo(BeEmpty())
	for _, file := range files {
		text, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		var d struct {
			Panels []struct{ Targets []struct{ Expr string } }
		}
		Expect(json.Unmarshal(text, &d)).To(Succeed(), file)
		for _, p := range d.Panels {
			for _, t := range p.Targets {
				all = append(all, strings.NewReplacer("$__rate_interval", "1m", "$volume", ".+").Replace(t.Expr))
			}
		}
	}
	rules, err := os.ReadFile(filepath.Join(f.Root(), "charts/weir/files/rules.yaml"))
	Expect(err).NotTo(HaveOccurred())
	for _, line := range strings.Split(string(rules), "\n") {
		if expr, ok := strings.CutPrefix(strings.TrimSpace(line), "expr: "); ok {
			for _, m := range selector.FindAllStringSubmatch(expr, -1) {
				all = append(all, m[1])
			}
		}
	}
	return all
}

// without returns the queries that return nothing.
func (p *prometheus) without(queries []string) (nothing []string) {
	for _, q := range queries {
		var got struct{ Result []json.RawMessage }
		if err := p.ask("query", url.Values{"query": {q}}, &got); err != nil {
			nothing = append(nothing, q+": "+err.Error())
		} else if len(got.Result) == 0 {
			nothing = append(nothing, q)
		}
	}
	return nothing
}
