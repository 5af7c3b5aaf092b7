// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/weir-storage/weir/test/e2e/kube"
)

// hang bounds each step; nothing here is expected to take it.
const hang = 3 * time.Minute

// bounded is a context of a step.
func bounded() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	time.AfterFunc(hang, cancel) // it ends then in any case
	return ctx
}

// figure adds a line to the report, which is shown also when everything went well.
func figure(format string, a ...any) {
	AddReportEntry(fmt.Sprintf(format, a...), ReportEntryVisibilityAlways)
}

// try runs kubectl.
func try(site string, args ...string) (string, error) {
	out, err := f.Site(site).Kubectl(bounded(), args...)
	return strings.TrimSpace(out), err
}

// kubectl runs a command that must succeed.
func kubectl(site string, args ...string) string {
	GinkgoHelper()
	out, err := try(site, args...)
	Expect(err).NotTo(HaveOccurred(), out)
	return out
}

func apply(site, yaml string) {
	GinkgoHelper()
	Expect(f.Site(site).Apply(bounded(), yaml)).To(Succeed())
}

// refused applies what must not be, and returns what is said.
func refused(site, yaml string) string {
	GinkgoHelper()
	err := f.Site(site).Apply(bounded(), yaml)
	Expect(err).To(HaveOccurred(), "applied: %s", yaml)
	return err.Error()
}

// exec runs a script in a pod; it must succeed.
func exec(site, pod, script string) string {
	GinkgoHelper()
	out, err := f.Site(site).Exec(bounded(), pod, "sh", "-c", script)
	Expect(err).NotTo(HaveOccurred(), "%s: %s: %s", pod, script, out)
	return strings.TrimSpace(out)
}

// guest runs a script on the guest of a site, outside of pods.
func guest(site, script string) string {
	GinkgoHelper()
	out, err := f.Site(site).GuestNode().Output(bounded(), script)
	Expect(err).NotTo(HaveOccurred(), "%s: %s", script, out)
	return strings.TrimSpace(out)
}

// weir runs Weir's command at a site.
func weir(site string, args ...string) (string, error) {
	return try(site, append([]string{"exec", "-n", Namespace, "weir-gateway-0", "--", "weir"}, args...)...)
}

// together runs parts of a spec at the same time.
func together(parts ...func()) {
	var all sync.WaitGroup
	for _, part := range parts {
		all.Go(func() {
			defer GinkgoRecover()
			part()
		})
	}
	all.Wait()
}

// discard deletes what is no longer needed; nobody waits for it.
func discard(site string, what ...string) {
	GinkgoHelper()
	kubectl(site, append([]string{"delete", "--wait=false"}, what...)...)
}

// until asks until it has an answer.
func until(what string, ask func() (string, bool)) string {
	GinkgoHelper()
	for end := time.Now().Add(hang); ; time.Sleep(time.Second) {
		got, ok := ask()
		if ok {
			return got
		}
		if time.Now().After(end) {
			Fail(fmt.Sprintf("%s: never; last: %s", what, got))
		}
	}
}

// ready waits for a condition Ready.
func ready(site string, objects ...string) {
	GinkgoHelper()
	kubectl(site, append([]string{"wait", "--for=condition=Ready", "--timeout=150s"}, objects...)...)
}

// says waits until an object's condition Ready has that reason, and returns its message.
func says(site, object, namespace, reason string) string {
	GinkgoHelper()
	const condition = `.status.conditions[?(@.type=="Ready")]`
	got := until(object+" at "+site+" says "+reason, func() (string, bool) {
		out, err := try(site, "get", object, "-n", namespace, "-o", "jsonpath={"+condition+".reason} {"+condition+".message}")
		if err != nil {
			return err.Error(), false
		}
		return out, strings.HasPrefix(out, reason+" ")
	})
	return strings.TrimPrefix(got, reason+" ")
}

// show notes what a person sees at each site that is there.
func show() {
	GinkgoHelper()
	for _, name := range f.Names() {
		if f.Site(name).HostNode() != nil {
			GinkgoWriter.Printf("site %s:\n%s\n", name, kubectl(name, "get", "gv,gvc,sites", "-A", "-o", "wide"))
		}
	}
}

// pod returns the manifest of a pod on its site's guest, with a claim mounted at /data. more is
// added to its spec.
func pod(name, claim, namespace string, more ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {e2e.weir.dev/node: guest}
%s  containers:
  - {name: app, image: %s, imagePullPolicy: IfNotPresent, volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]
---
`, name, namespace, strings.Join(more, ""), kube.ImageName("app"), claim)
}

// volume returns the manifest of a GeoVolume with two copies, one of them at the site where it is
// applied. more is added to its spec.
func volume(name, namespace string, more ...string) string {
	return fmt.Sprintf(`apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: %s, namespace: %s}
spec: {size: 512Mi, policy: safe%s}
---
`, name, namespace, strings.Join(append([]string{""}, more...), ", "))
}

// imports is a manifest of an import.
func imports(name, namespace, volume string, more ...string) string {
	return fmt.Sprintf(`apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: %s, namespace: %s}
spec: {import: {volume: %s}%s}
---
`, name, namespace, volume, strings.Join(append([]string{""}, more...), ", "))
}

// contentOf is the name of a volume's GeoVolumeContent.
func contentOf(site, geoVolume, namespace string) string {
	GinkgoHelper()
	return kubectl(site, "get", "gv/"+geoVolume, "-n", namespace, "-o", "jsonpath={.status.volume}")
}

// job is a command of guesttool that runs in a pod until a file asks it to stop. Starting a command
// in a pod costs its node much more than the command itself, so waiting is done inside the pod.
type job struct {
	site, pod, id string
	restarts      string
}

var jobs atomic.Int64

// begin starts `guesttool WHAT /data/FILE RECORD STOP`, and returns when that has noted something.
func begin(site, pod, what, file string) *job {
	GinkgoHelper()
	j := &job{site: site, pod: pod, id: fmt.Sprintf("/tmp/%s-%d", what, jobs.Add(1))}
	j.restarts = j.restarted()
	j.script(fmt.Sprintf("setsid sh -c 'PACE=20ms guesttool %s /data/%s $0.record $0.stop >$0.said 2>&1; echo $? >$0.code' $j "+
		">/dev/null 2>&1 &\n",
		what, file) +
		"until [ -s $j.record ]; do alive; done")
	return j
}

// script runs a shell script in the pod, in which $j is the job's path. Its function `alive` waits
// a little, and ends the script when the job has ended or printed something. `within` ends the
// script when it has been called for three minutes, because nothing else would.
func (j *job) script(text string) string {
	GinkgoHelper()
	return exec(j.site, j.pod, "j="+j.id+`
n=0
within() { sleep 0.2; n=$((n + 1)); if [ $n -gt 900 ]; then echo "$j: never; $(wc -l <$j.record) lines are noted"; exit 1; fi; }
alive() { if [ -s $j.code ] || [ -s $j.said ]; then echo "$j ended: $(cat $j.code $j.said)"; exit 1; fi; within; }
`+text)
}

func (j *job) restarted() string {
	GinkgoHelper()
	namespace, name, ok := strings.Cut(j.pod, "/")
	if !ok {
		namespace, name = "default", j.pod
	}
	return kubectl(j.site, "get", "pod/"+name, "-n", namespace, "-o",
		"jsonpath={.metadata.uid} {.status.containerStatuses[0].restartCount}")
}

// noted is how much a writer has noted.
func (j *job) noted() (n int) {
	GinkgoHelper()
	_, err := fmt.Sscan(j.script("wc -l <$j.record"), &n)
	Expect(err).NotTo(HaveOccurred())
	return n
}

// notedBetween is how much a writer noted in a time, by its node's clock.
func (j *job) notedBetween(from, to time.Time) (n int) {
	GinkgoHelper()
	_, err := fmt.Sscan(j.script(fmt.Sprintf("awk '$2/1e9 >= %d && $2/1e9 < %d {n++} END {print n+0}' $j.record", from.Unix(), to.Unix())),
		&n)
	Expect(err).NotTo(HaveOccurred())
	return n
}

// goesOn waits until a writer has noted n more, and returns how long that took.
func (j *job) goesOn(n int) time.Duration {
	GinkgoHelper()
	began := time.Now()
	j.script(fmt.Sprintf("end=$(( $(wc -l <$j.record) + %d )); until [ $(wc -l <$j.record) -ge $end ]; do alive; done", n))
	return time.Since(began).Round(100 * time.Millisecond)
}

var stall = regexp.MustCompile(`longest stall (\d+) ms`)

// finish stops the job. The job must have had no error, in a pod that was never restarted. finish
// returns its longest stall, if it printed one.
func (j *job) finish() time.Duration { return j.end("") }

func (j *job) end(then string) time.Duration {
	GinkgoHelper()
	said := j.script("touch $j.stop; until [ -s $j.code ]; do within; done; cat $j.code $j.said\n" + then)
	Expect(said).To(HavePrefix("0\n"), "it ended with an error")
	Expect(j.restarted()).To(Equal(j.restarts), "the pod was restarted")
	if m := stall.FindStringSubmatch(said); m != nil {
		ms, err := strconv.Atoi(m[1])
		Expect(err).NotTo(HaveOccurred())
		return time.Duration(ms) * time.Millisecond
	}
	return 0
}

// verified stops a writer of lines, and finds every line in the file again.
func (j *job) verified(file string) time.Duration {
	GinkgoHelper()
	return j.end(fmt.Sprintf("guesttool verify /data/%s $j.record", file))
}
