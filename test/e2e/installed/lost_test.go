// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// lost tests the loss of a whole site: cluster, gateway, store and member of the registry. It runs
// last, and brings the site back before it ends.
func lost() {
	It("may be lost: pods elsewhere go on, replacements start, and another takes the ownership over", func() {
		apply("a", volume("inherited", "default", "reclaimPolicy: Delete", "grants: [{site: b, namespace: default}]"))
		ready("a", "gv/inherited")
		content := contentOf("a", "inherited", "default")
		apply("b", imports("inherited", "default", "default.inherited"))
		ready("b", "gv/inherited")
		exec("a", "at-a", "echo hello > /data/greeting; sync")

		watch := watchWith("b")
		defer watch.end()
		quiet, err := watch.firing("WeirSiteDown")
		Expect(err).NotTo(HaveOccurred())
		Expect(quiet).To(BeEmpty())
		lines := begin("b", "at-b", "write", "lost")
		lines.goesOn(20)
		gone := time.Now()
		f.Lose("a")
		told := make(chan time.Duration, 1)
		go func() {
			defer GinkgoRecover()
			until("Prometheus at b tells that site a is down", func() (string, bool) {
				alerts, err := watch.firing("WeirSiteDown")
				return fmt.Sprint(alerts, err), len(alerts) == 1 && alerts[0]["site"] == "a"
			})
			told <- time.Since(gone)
		}()
		figure("site a lost: the pod at b wrote 50 more lines within %v", lines.goesOn(50))
		figure("its longest stall was %v, and every line is there", lines.verified("lost"))
		apply("b", pod("replacement", "from-a", "default"))
		ready("b", "pod/replacement")
		Expect(exec("b", "replacement", "cat /data/greeting")).To(Equal("hello"))
		ready("b", "gv/from-a")
		show()
		var after time.Duration
		Eventually(told).WithTimeout(hang).Should(Receive(&after))
		figure("the alert WeirSiteDown fired %v after the loss", after.Round(100*time.Millisecond))
		Expect(after).To(BeNumerically("<=", time.Minute))

		By("it is declared lost, and b owns the volume")
		said, err := f.Person(bounded(), "b", "b", "volume", "transfer", "default.inherited", "--to", "b", "--force")
		Expect(err).To(MatchError(ContainSubstring("ask a person there")), said)
		said, err = f.Person(bounded(), "b", "b", "site", "lost", "a", "--yes")
		Expect(err).To(HaveOccurred(), said)
		said, err = f.Person(bounded(), "a", "b", "volume", "transfer", "default.inherited", "--to", "b", "--force")
		Expect(err).To(MatchError(ContainSubstring("weir site lost a")), said)
		until("its last heartbeat is over", func() (string, bool) {
			said, err := f.Person(bounded(), "a", "b", "site", "lost", "a", "--yes")
			Expect(err).To(Or(BeNil(), MatchError(ContainSubstring("it is not lost: the registry hears of a-0"))), said)
			return said, err == nil
		})
		Expect(says("b", "site/a", "default", "Lost")).NotTo(BeEmpty())
		_, err = f.Person(bounded(), "a", "b", "volume", "transfer", "default.inherited", "--to", "b", "--force")
		Expect(err).NotTo(HaveOccurred())
		kubectl("b", "wait", "--for=jsonpath={.spec.owner}=b", "--timeout=60s", "gvc/"+content)

		By("the old owner returns, is told, and deletes nothing")
		Expect(f.Return(bounded(), "a")).To(Succeed())
		until("the alert is over", func() (string, bool) {
			alerts, err := watch.firing("WeirSiteDown")
			return fmt.Sprint(alerts, err), err == nil && len(alerts) == 0
		})
		said = says("a", "gv/inherited", "default", "Superseded")
		figure("Superseded: %s", said)
		Expect(said).To(ContainSubstring("site b"))
		kubectl("a", "delete", "gv/inherited", "gvc/"+content, "--timeout=60s")
		_, err = f.Person(bounded(), "a", "a", "site", "found", "a")
		Expect(err).NotTo(HaveOccurred())
		apply("b", pod("heir", "inherited", "default"))
		ready("b", "pod/heir")
		Expect(exec("b", "heir", "echo mine now > /data/f; sync; cat /data/f")).To(Equal("mine now"))

		By("the volume that a still owns has all its copies again, and its pod what was written without it")
		back := time.Now()
		kubectl("a", "wait", "--for=jsonpath={.status.copies}=3/3", "--timeout=150s", "gv/shared")
		ready("a", "gv/shared")
		want := exec("b", "at-b", "tail -n 1 /data/lost")
		until("the pod at a reads what was written without it", func() (string, bool) {
			got, err := f.Site("a").Exec(bounded(), "at-a", "tail", "-n", "1", "/data/lost")
			return got, err == nil && strings.TrimSpace(got) == want
		})
		figure("site a was whole again %v after its return", time.Since(back).Round(100*time.Millisecond))

		By("all that dashboards and rules ask for was measured at b")
		apply("b", claim("measured", "ReadWriteMany")+pod("writer", "measured", "default")) // its home is at b
		ready("b", "pod/writer")
		all := queries()
		until("each query returns something", func() (string, bool) {
			exec("b", "writer", "date >> /data/f; sync; cat /data/f")
			nothing := watch.without(all)
			return strings.Join(nothing, "\n"), len(nothing) == 0
		})
		figure("%d queries of dashboards and rules return data", len(all))
		show()
	})
}
