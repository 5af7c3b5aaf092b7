// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// client calls the API server as an administrator. It serves frequent small requests only; the rest
// is left to kubectl, which takes longer to start.
type client struct {
	server string
	http   *http.Client
}

func newClient(pki *authority, s *Site) (*client, error) {
	config, err := pki.clientConfig("admin")
	if err != nil {
		return nil, err
	}
	// Connections are not kept, so that no call waits on one whose other end lost its power.
	return &client{s.server(), &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{DialContext: s.DialContext, TLSClientConfig: config, DisableKeepAlives: true},
	}}, nil
}

// get reads an object into v, unless v is nil.
func (c *client) get(ctx context.Context, path string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.server+path, nil)
	if err != nil {
		return err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, res.Status, b)
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(b, v)
}

func (c *client) ready(ctx context.Context) error { return c.get(ctx, "/readyz", nil) }

// admin prepares a program of hack/tools that runs at the site and is the cluster's administrator.
func (s *Site) admin(ctx context.Context, program string, args ...string) (*exec.Cmd, error) {
	path, err := s.c.program(program)
	if err != nil {
		return nil, err
	}
	cmd := s.Command(ctx, path, args...)
	home := filepath.Join(s.Dir(), program)
	cmd.Env = append(cmd.Environ(), "KUBECONFIG="+s.Kubeconfig(), "KUBERC=off", "KUBECACHEDIR="+home, "HELM_CACHE_HOME="+home,
		"HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	return cmd, nil
}

func (s *Site) run(ctx context.Context, stdin, program string, args ...string) (string, error) {
	cmd, err := s.admin(ctx, program, args...)
	if err != nil {
		return "", err
	}
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("at site %s: %s %s: %w: %s", s.Name(), program, strings.Join(args, " "), err,
			strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// Kubectl runs kubectl as the cluster's administrator and returns its standard output. The error
// has its standard error.
func (s *Site) Kubectl(ctx context.Context, args ...string) (string, error) {
	return s.run(ctx, "", "kubectl", args...)
}

// KubectlLines runs a kubectl command that goes on until ctx ends, such as a watch. told gets each
// line of its output.
func (s *Site) KubectlLines(ctx context.Context, told func(line string), args ...string) error {
	cmd, err := s.admin(ctx, "kubectl", args...)
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		told(lines.Text())
	}
	if err := cmd.Wait(); ctx.Err() == nil {
		return fmt.Errorf("at site %s: kubectl %s ended: %w", s.Name(), strings.Join(args, " "), err)
	}
	return nil
}

// Apply applies manifests.
func (s *Site) Apply(ctx context.Context, yaml string) error {
	_, err := s.run(ctx, yaml, "kubectl", "apply", "-f", "-")
	return err
}

// SnapshotKinds installs the kinds of snapshot.storage.k8s.io, as a cluster's administrator does.
func (s *Site) SnapshotKinds(ctx context.Context) error {
	definitions, err := exec.CommandContext(ctx, filepath.Join(s.c.root, "hack/snapshot-crds")).Output()
	if err != nil {
		return fmt.Errorf("find the kinds of snapshots: %w", err)
	}
	return s.Apply(ctx, string(definitions))
}

// Exec runs a command in the first container of a pod. pod is NAME in namespace default, or
// NAMESPACE/NAME.
func (s *Site) Exec(ctx context.Context, pod string, command ...string) (string, error) {
	namespace, name, ok := strings.Cut(pod, "/")
	if !ok {
		namespace, name = "default", pod
	}
	return s.Kubectl(ctx, append([]string{"exec", "-n", namespace, name, "--"}, command...)...)
}

// Helm runs helm as the cluster's administrator.
func (s *Site) Helm(ctx context.Context, args ...string) (string, error) {
	return s.run(ctx, "", "helm", args...)
}

// dump writes what helps to see why something failed. What it could not read is noted there too.
func (s *Site) dump(ctx context.Context, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"get", "nodes,pods,services,endpointslices,persistentvolumes,persistentvolumeclaims,volumeattachments", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"describe", "pods", "-A"},
		{"describe", "nodes"},
	} {
		out, err := s.Kubectl(ctx, append(args, "--request-timeout=10s")...)
		if _, errOut := fmt.Fprintf(f, "# kubectl %s\n%s", strings.Join(args, " "), out); errOut != nil {
			return errors.Join(errOut, f.Close())
		}
		if err != nil {
			_, _ = fmt.Fprintln(f, err) // if this write fails, so does the next
		}
	}
	return f.Close()
}
