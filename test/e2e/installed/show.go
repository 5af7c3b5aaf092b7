// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weir-storage/weir/test/e2e/kube"
	"github.com/weir-storage/weir/test/e2e/playbill"
)

// Show is a demonstration on clusters: what its methods do, a person could type.
type Show struct {
	*playbill.Play
	*Federated
	Source string // a tree of files on this machine, which pods see at /source
}

// Kubectl runs a command at a site and returns what it printed.
func (s *Show) Kubectl(ctx context.Context, site string, args ...string) (string, error) {
	out, err := s.Site(site).Kubectl(ctx, args...)
	if err != nil {
		return "", fmt.Errorf("site %s: kubectl %s: %w: %s", site, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out), nil
}

// Table prints what a person sees at a site.
func (s *Show) Table(ctx context.Context, site, kinds string) error {
	out, err := s.Kubectl(ctx, site, "get", kinds, "-A", "-o", "wide")
	fmt.Printf("  kubectl get %s -o wide, at %s\n%s", kinds, site, playbill.Indent(out))
	return err
}

// Apply prints a manifest and applies it.
func (s *Show) Apply(ctx context.Context, site, text string) error {
	fmt.Print(playbill.Indent(text))
	return s.Site(site).Apply(ctx, text)
}

// Wait waits for a condition of an object, in the words of `kubectl wait --for`.
func (s *Show) Wait(ctx context.Context, site, what, condition string) error {
	_, err := s.Kubectl(ctx, site, "wait", "--for="+condition, "--timeout=150s", what)
	return err
}

// Exec runs a script in a pod.
func (s *Show) Exec(ctx context.Context, site, pod, script string) (string, error) {
	out, err := s.Site(site).Exec(ctx, pod, "sh", "-c", script)
	if err != nil {
		return "", fmt.Errorf("site %s, pod %s: %s: %w: %s", site, pod, script, err, out)
	}
	return strings.TrimSpace(out), nil
}

// Pod returns the manifest of a pod with volumes on the node that has an NFS client. The pod also
// sees the source tree, to copy files from.
func (s *Show) Pod(name string, claims map[string]string) string {
	mounts, volumes := "", ""
	for path, claim := range claims {
		mounts += fmt.Sprintf(", {name: %s, mountPath: %s}", claim, path)
		volumes += fmt.Sprintf(", {name: %s, persistentVolumeClaim: {claimName: %[1]s}}", claim)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {e2e.weir.dev/node: guest}
  containers:
  - {name: app, image: %s, imagePullPolicy: IfNotPresent, volumeMounts: [{name: source, mountPath: /source, readOnly: true}%s]}
  volumes: [{name: source, hostPath: {path: %s}}%s]
`, name, kube.ImageName("app"), mounts, s.Source, volumes)
}

// Write has a pod write lines into a file, and fsync each, until EndWriting. pace is a pause
// between them, such as 20ms.
func (s *Show) Write(ctx context.Context, site, pod, file, pace string) error {
	_, err := s.Exec(ctx, site, pod, "setsid sh -c 'PACE="+pace+" guesttool write "+file+
		" /tmp/record /tmp/stop >/tmp/said 2>&1; echo $? >/tmp/code' >/dev/null 2>&1 &")
	return err
}

// EndWriting stops what Write began, which must have had no error, and finds every line in the file
// again.
func (s *Show) EndWriting(ctx context.Context, site, pod, file string) error {
	_, err := s.Exec(ctx, site, pod, "touch /tmp/stop; while [ ! -e /tmp/code ]; do sleep 0.2; done; cat /tmp/said; "+
		"[ $(cat /tmp/code) = 0 ] && guesttool verify "+file+" /tmp/record")
	return err
}

// Lines waits until the writer in a pod has noted n lines, and returns how many it has.
func (s *Show) Lines(ctx context.Context, site, pod string, n int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		out, err := s.Exec(ctx, site, pod, "wc -l < /tmp/record || echo 0")
		if err != nil {
			return 0, err
		}
		var got int
		if _, err := fmt.Sscan(out, &got); err != nil {
			return 0, err
		}
		if got >= n {
			return got, nil
		}
		time.Sleep(200 * time.Millisecond)
	}
}
