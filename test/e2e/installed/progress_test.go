// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/weir-storage/weir/test/e2e/stage"
)

// shown is a line of `kubectl get gvc -w` with progress.
type shown struct {
	at      time.Time
	percent int
	left    time.Duration // 0: none was said
}

var progressText = regexp.MustCompile(`\s(\d+)%, [0-9.]+[KM]iB/s, (?:(\S+) left)?`)

// copied tests that people see how a new copy comes along: the part that is there, the rate, and
// the time that is left. In the long form it copies 5 GiB.
func copied() {
	It("shows how far it is, how fast, and when it will be there", func() {
		chunks, mib, rate := 1, 96, uint64(24e6) // of the link to the new copy, bits per second
		size, patience := "512Mi", 2*hang        // it takes a minute
		if os.Getenv("WEIR_SOAK") != "" {
			chunks, mib, rate, size = 40, 128, 200e6, "8Gi"
			patience = 20 * time.Minute
		}
		apply("a", fmt.Sprintf(`apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: copied, namespace: default}
spec:
  size: %s
  policy: safe
  durability: {acknowledge: Gateway}
  replication: {copies: 1, sites: {required: [a]}}
---
`, size)+pod("copies", "copied", "default"))
		ready("a", "pod/copies")
		for i := range chunks {
			exec("a", "copies", fmt.Sprintf("dd if=/dev/urandom of=/data/f%d bs=1M count=%d conv=fsync 2>/dev/null", i, mib))
		}
		content := contentOf("a", "copied", "default")

		Expect(f.Stage.SetLink(bounded(), "c", stage.Link{Rate: rate})).To(Succeed())
		DeferCleanup(func() { Expect(f.Stage.SetLink(bounded(), "c", stage.Link{})).To(Succeed()) })
		ctx, end := context.WithCancel(context.Background())
		defer end()
		var lines []shown
		watched := make(chan error, 1)
		go func() {
			watched <- f.Site("a").KubectlLines(ctx, func(line string) {
				GinkgoWriter.Println(line)
				if m := progressText.FindStringSubmatch(line); m != nil {
					percent, _ := strconv.Atoi(m[1])
					left, _ := time.ParseDuration(m[2])
					lines = append(lines, shown{time.Now(), percent, left})
				}
			}, "get", "gvc", content, "-w")
		}()
		began := time.Now()
		kubectl("a", "patch", "gv/copied", "--type=merge", "-p", `{"spec":{"replication":{"copies":2,"sites":{"required":["a","c"]}}}}`)
		var took time.Duration
		for deadline := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
			got, err := try("a", "get", "gvc/"+content, "-o", "jsonpath={.status.copies}")
			Expect(err).NotTo(HaveOccurred())
			if got == "2/2" {
				took = time.Since(began)
				break
			}
			Expect(time.Now()).To(BeTemporally("<", deadline), "the copy is not there: %s", got)
		}
		arrived := time.Now()
		end()
		Expect(<-watched).To(Succeed())

		checked, worst := 0, 1.0
		for _, l := range lines {
			truth := arrived.Sub(l.at)
			if l.percent < 10 || truth < 10*time.Second { // what is said is a few seconds old
				continue
			}
			Expect(l.left).NotTo(BeZero(), "%d%%, %v before the end", l.percent, truth)
			checked++
			ratio := max(l.left.Seconds()/truth.Seconds(), truth.Seconds()/l.left.Seconds())
			worst = max(worst, ratio)
			Expect(ratio).To(BeNumerically("<=", 1.5), "at %d%% it said %v, and took %v", l.percent, l.left, truth)
		}
		figure("%d MiB were copied in %v; of %d lines of kubectl get gvc -w with a time left, %d were compared, the worst was wrong by a "+
			"factor of %.2f", chunks*mib, took.Round(time.Second), len(lines), checked, worst)
		Expect(checked).To(BeNumerically(">=", 3))
		discard("a", "pod/copies", "gv/copied")
	})
}
