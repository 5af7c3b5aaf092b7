// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// borrow is a manifest of a request for half of what an offer accepts by itself.
func borrow(name, offer string) string {
	return fmt.Sprintf(`apiVersion: storage.weir.dev/v1alpha1
kind: StorageRequest
metadata: {name: %s}
spec: {offer: %s, amount: 1Gi, until: %q}
---
`, name, offer, time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339))
}

// offers has a site offer room, and waits until another finds it.
func offers(at, offer string) {
	GinkgoHelper()
	host, _, _ := strings.Cut(offer, ".")
	apply(host, `apiVersion: storage.weir.dev/v1alpha1
kind: StorageOffer
metadata: {name: disks}
spec: {amount: 2Gi, automatic: 2Gi, price: free, notice: 2m, grace: 1m}
---
`)
	until(at+" finds "+offer, func() (string, bool) {
		out, err := try(at, "get", "storageoffer/"+offer)
		return out, err == nil
	})
}

// agreed asks for what an offer accepts by itself, and returns the agreement once it can be used.
func agreed(name, offer string) (id string) {
	GinkgoHelper()
	offers("a", offer)
	apply("a", borrow(name, offer))
	id = kubectl("a", "get", "storagerequest/"+name, "-o", "jsonpath={.metadata.uid}")
	phase("a", id, "Active")
	return id
}

// phase waits for the state of an agreement at a site.
func phase(site, id, want string) {
	GinkgoHelper()
	until(id+" is "+want+" at "+site, func() (string, bool) {
		out, err := try(site, "get", "storageagreement/"+id, "-o", "jsonpath={.status.phase} {.status.conditions[*].message}")
		return out, err == nil && strings.HasPrefix(out, want+" ")
	})
}

// inStore waits until a volume has everything in the store of an agreement.
func inStore(content, id string) {
	GinkgoHelper()
	until(content+" is in the store of "+id, func() (string, bool) {
		out, err := try("a", "get", "gvc/"+content, "-o", `jsonpath={.status.stores[?(@.agreement=="`+id+`")].state}`)
		return out, err == nil && out == "Whole"
	})
}

// protected is a line of what a volume shows: copies that are there, copies that are wanted, and
// whether it is protected.
var protected = regexp.MustCompile(`^(\d+)/(\d+) (True|False|Unknown)$`)

// lending is what organizations lend each other.
func lending() {
	It("ends while a pod writes, and nothing is left at the host", func() {
		first := agreed("kept", "c.disks")
		apply("a", `apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: kept, namespace: default}
spec: {size: 1Gi, replication: {copies: 1, stores: 1, sites: {required: [a]}}, durability: {maxLag: {time: 5s}}}
---
`+pod("keeper", "kept", "default"))
		ready("a", "gv/kept", "pod/keeper")
		content := contentOf("a", "kept", "default")
		lines, files := begin("a", "keeper", "write", "lines"), begin("a", "keeper", "files", "")
		inStore(content, first)
		// What it has there is to be found, as long as it is there.
		var sample []byte
		until("some objects are at c", func() (string, bool) {
			all, err := f.Lent("c")
			for _, path := range all {
				if b, err := os.ReadFile(path); err == nil && len(b) > 64<<10 && strings.Contains(path, first) {
					sample = b[32<<10 : 33<<10]
				}
			}
			return fmt.Sprint(len(all), err), len(all) > 2 && sample != nil
		})
		Expect(f.OnDisk("c", sample)).To(BeTrue(), "the search does not find what is there")

		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var watch sync.WaitGroup
		var mu sync.Mutex
		var said []string
		watch.Go(func() {
			defer GinkgoRecover()
			Expect(f.Site("a").KubectlLines(ctx, func(line string) {
				mu.Lock()
				defer mu.Unlock()
				said = append(said, line)
			}, "get", "gvc/"+content, "-w", "-o",
				`jsonpath={.status.copies} {.status.conditions[?(@.type=="Protected")].status}{"\n"}`)).To(Succeed())
		})
		kubectl("c", "patch", "storageagreement/"+first, "--type=merge", "-p", `{"spec":{"notice":{"why":"the disks are old"}}}`)
		noticed := time.Now()
		next := agreed("instead", "b.disks")
		inStore(content, next)
		moved := time.Since(noticed)
		for _, site := range []string{"a", "c"} { // the operators say all that follows
			phase(site, first, "Ended")
		}
		figure("notice was given: everything was in another store %v later, and the agreement had ended %v later",
			moved.Round(time.Second), time.Since(noticed).Round(time.Second))
		left, err := f.Lent("c")
		Expect(err).NotTo(HaveOccurred())
		Expect(left).NotTo(ContainElement(ContainSubstring(first)))
		Expect(f.OnDisk("c", sample)).To(BeFalse(), "what the guest had is on the host's disks")
		Expect(kubectl("a", "get", "storageagreement/"+first, "-o", "jsonpath={.status.said[*].what}")).To(
			And(ContainSubstring("deleted"), ContainSubstring("confirmed")), "both hold the receipt")
		files.finish()
		figure("the pod had no error; its longest stall was %v, and every line is there", lines.verified("lines"))
		cancel()
		watch.Wait()
		Expect(said).NotTo(BeEmpty())
		for _, line := range said {
			m := protected.FindStringSubmatch(line)
			Expect(m).NotTo(BeNil(), "%q", line)
			Expect(m[1] == m[2] || m[3] != "True").To(BeTrue(), "copies are missing, and it does not say so: %q", line)
		}
		discard("a", "pod/keeper", "gv/kept", "storagerequest/kept", "storagerequest/instead")
	})

	It("is shown in the console, to who signs in with a token of the cluster", func() {
		apply("c", `apiVersion: v1
kind: ServiceAccount
metadata: {name: looker, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: looker}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: weir-view}
subjects: [{kind: ServiceAccount, name: looker, namespace: default}]
---
`)
		offers("c", "b.disks")
		token := kubectl("c", "create", "token", "looker")
		at := "http://" + kubectl("c", "get", "service/weir-console", "-n", Namespace, "-o", "jsonpath={.spec.clusterIP}")
		web := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: f.Site("c").DialContext},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		defer web.CloseIdleConnections()
		asks := func(method, path, session string, form url.Values) *http.Response {
			req, err := http.NewRequestWithContext(bounded(), method, at+path, strings.NewReader(form.Encode()))
			Expect(err).NotTo(HaveOccurred())
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			req.Header.Set("Cookie", session)
			res, err := web.Do(req)
			Expect(err).NotTo(HaveOccurred())
			return res
		}
		in := asks("POST", "/login", "", url.Values{"token": {token}})
		_ = in.Body.Close()
		Expect(in.Cookies()).NotTo(BeEmpty(), in.Status)
		c := in.Cookies()[0]
		res := asks("GET", "/offers", c.Name+"="+c.Value, nil)
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		Expect(err).NotTo(HaveOccurred())
		Expect(res.StatusCode).To(Equal(http.StatusOK), string(text))
		Expect(string(text)).To(ContainSubstring("b.disks"), "what others offer")
	})
}
