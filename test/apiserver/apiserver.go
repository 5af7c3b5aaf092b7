// SPDX-License-Identifier: Apache-2.0

// Package apiserver runs a real Kubernetes API server for tests: etcd and kube-apiserver on
// loopback, which hack/tools/build builds, with the kinds of config/crd. It has no controllers and
// no nodes. The tests of this package check what the API server itself refuses, and the messages
// that a person reads.
package apiserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// hangGuard ends what hangs; nothing is measured by it.
const hangGuard = 3 * time.Minute

// Start runs an API server until the test ends. It returns how to reach it as an administrator.
func Start(t testing.TB) *rest.Config {
	t.Helper()
	root := source(t)
	bin := tools(t, root)
	env := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join(root, "config", "crd")},
		ErrorIfCRDPathMissing: true,
		BinaryAssetsDirectory: bin,

		// The package's own limits are 20 s, which a busy machine needs.
		ControlPlaneStartTimeout: hangGuard,
		ControlPlaneStopTimeout:  hangGuard,
	}
	server := env.ControlPlane.GetAPIServer()
	server.Path = filepath.Join(bin, "kube-apiserver")
	// The clients of these tests are many and impatient; fairness between them is not what is
	// tested.
	server.Configure().Append("max-requests-inflight", "3000").Append("max-mutating-requests-inflight", "1000")
	cfg, err := env.Start()
	if err != nil {
		t.Fatalf("start kube-apiserver: %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop kube-apiserver: %v", err)
		}
	})
	cfg.QPS = -1 // no limit
	return cfg
}

// source is the tree's root.
func source(t testing.TB) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("find source tree: %v", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}

// tools builds what is missing, and returns the folder.
func tools(t testing.TB, root string) string {
	t.Helper()
	build := filepath.Join(root, "hack", "tools", "build")
	cmd := exec.CommandContext(t.Context(), build, "etcd", "kube")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s etcd kube: %v", build, err)
	}
	out, err := exec.CommandContext(t.Context(), build, "-p").Output()
	if err != nil {
		t.Fatalf("%s -p: %v", build, err)
	}
	return strings.TrimSpace(string(out))
}
