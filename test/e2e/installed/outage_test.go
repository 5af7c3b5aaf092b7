// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"flag"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// outage is how long the registry and the API server are away.
var outage = flag.Duration("outage", 0, "how long the registry and the API server are away; 0: 40s, or 10m in the long form, with "+
	"WEIR_SOAK=1")

// lasts is longer than every lease in any case.
func lasts() time.Duration {
	switch {
	case *outage != 0:
		return *outage
	case os.Getenv("WEIR_SOAK") != "":
		return 10 * time.Minute
	}
	return 40 * time.Second
}

// outages are of what pods with volumes do not need.
func outages() {
	It("may be away: all of the registry", func() {
		a, b := begin("a", "at-a", "write", "registry-a"), begin("b", "at-b", "write", "registry-b")
		held := begin("b", "at-b", "lock", "registry-lock")
		for _, name := range f.Names() {
			f.Etcd.Member(name).Kill()
		}
		DeferCleanup(func() { // for what comes, if this fails
			for _, name := range f.Names() {
				if f.Etcd.Member(name).Proc().Exited() {
					Expect(f.Etcd.Member(name).Start()).To(Succeed())
				}
			}
		})
		time.Sleep(lasts())
		a.goesOn(20)
		b.goesOn(20)
		for _, name := range f.Names() {
			Expect(f.Etcd.Member(name).Start()).To(Succeed())
		}
		back := time.Now()
		statusIsRight()
		took := time.Since(back).Round(100 * time.Millisecond)
		held.finish()
		figure("registry away for %v: no error in pods; longest stall of a writer at a %v, at b %v; status was right again %v after",
			lasts(), a.verified("registry-a"), b.verified("registry-b"), took)
	})

	It("may be away: a cluster's API server", func() {
		a, b := begin("a", "at-a", "write", "api-a"), begin("b", "at-b", "write", "api-b")
		Expect(f.Site("a").StopAPI()).To(Succeed())
		started := false
		DeferCleanup(func() { // for what comes, if this fails
			if !started {
				Expect(f.Site("a").StartAPI(bounded())).To(Succeed())
			}
		})
		began := time.Now()
		time.Sleep(lasts())
		ended := time.Now()
		b.goesOn(20)
		Expect(f.Site("a").StartAPI(bounded())).To(Succeed())
		started = true
		back := time.Now()
		until("the operator of a leads again", func() (string, bool) {
			got, err := try("a", "get", "lease/weir-operator", "-n", Namespace, "-o", "jsonpath={.spec.renewTime}")
			at, perr := time.Parse(time.RFC3339, got)
			return got, err == nil && perr == nil && at.After(back)
		})
		figure("the operator of a led again %v after its API server was back", time.Since(back).Round(100*time.Millisecond))
		statusIsRight()
		took := time.Since(back).Round(100 * time.Millisecond)
		GinkgoWriter.Println(kubectl("a", "logs", "-n", Namespace, "-l", "app.kubernetes.io/component=operator", "--prefix", "--since=4m",
			"--tail=200"))
		// Nobody could ask a's writer meanwhile; its record has the times.
		Expect(a.notedBetween(ended.Add(-20*time.Second), ended)).
			To(BeNumerically(">", 20), "lines in the last twenty seconds of the outage")
		meanwhile := a.notedBetween(began, ended)
		figure("API server of a away for %v: no error in pods; the writer at a noted %d lines meanwhile; longest stall of a writer "+
			"at a %v, at b %v; status was right again %v after",
			lasts(), meanwhile, a.verified("api-a"), b.verified("api-b"), took)
	})
}

// statusIsRight makes a change, and waits until it is in force at both sites and all is ready. A
// change takes effect only when the operators have caught up.
func statusIsRight() {
	GinkgoHelper()
	name := "made-at-" + time.Now().Format("150405")
	until("a new volume is made", func() (string, bool) {
		err := f.Site("a").Apply(bounded(), volume(name, "default", "reclaimPolicy: Delete", "grants: [{site: b, namespace: default}]"))
		return "", err == nil
	})
	ready("a", "gv/"+name, "gv/shared")
	apply("b", imports(name, "default", "default."+name))
	ready("b", "gv/"+name, "gv/from-a")
	kubectl("a", "wait", "--for=jsonpath={.status.copies}=3/3", "--timeout=100s", "gv/shared")
	kubectl("a", "wait", "--for=condition=Ready", "--timeout=100s", "sites", "--all")
	kubectl("b", "delete", "gv/"+name, "--timeout=60s")
	kubectl("a", "delete", "gv/"+name, "--timeout=60s")
}
