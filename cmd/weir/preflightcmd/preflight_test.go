// SPDX-License-Identifier: Apache-2.0

package preflightcmd

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/config"
	"github.com/weir-storage/weir/federation"
)

func TestPreflightNode(t *testing.T) {
	for _, c := range []struct {
		name        string
		filesystems string // "-": the file is not there
		module      bool
		synced      error
		nfs, clock  verdict
		says        string
	}{
		{"built in", "nodev\tsysfs\nnodev\tnfs4\n", false, nil, "", "", "NFSv4 is there"},
		{"a module", "nodev\tsysfs\n", true, nil, "", "", "lib/modules/6.1.0/kernel/fs/nfs/nfsv4.ko.xz"},
		{"none", "nodev\tnfsd\n", false, nil, broken, "", "CONFIG_NFS_V4"},
		{"no proc", "-", false, nil, broken, "", "/proc mounted"},
		{"no time service", "nodev\tnfs4\n", false, errors.New("no"), "", doubt, "time service"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			write := func(name, text string) {
				p := filepath.Join(root, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			if c.filesystems != "-" {
				write("proc/filesystems", c.filesystems)
			}
			if c.module {
				write("lib/modules/6.1.0/kernel/fs/nfs/nfsv4.ko.xz", "")
			}
			m := machine{root: root, release: func() (string, error) { return "6.1.0", nil },
				synced: func() (bool, error) { return c.synced == nil, c.synced }}
			nfs, clock := m.nfs(), m.clock()
			if nfs.Verdict != c.nfs || clock.Verdict != c.clock {
				t.Errorf("found %+v and %+v", nfs, clock)
			}
			if text := nfs.Found + nfs.Mend + clock.Found + clock.Mend; !strings.Contains(text, c.says) {
				t.Errorf("%q does not say %q", text, c.says)
			}
		})
	}
}

func TestPreflightPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := machine{listen: canListen}
	if f := m.port(t.Context(), "listen.nfs", l.Addr().String()); f.Verdict != broken || !strings.Contains(f.Mend, "listen.nfs") {
		t.Errorf("a port that is taken: %+v", f)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if f := m.port(t.Context(), "listen.nfs", l.Addr().String()); f.Verdict != "" {
		t.Errorf("a port that is free: %+v", f)
	}
}

func TestPreflightSiteName(t *testing.T) {
	cfg := config.Config{Site: "ams", Organization: "surf"}
	site := func(org string) []federation.SiteStatus {
		return []federation.SiteStatus{{Site: federation.Site{Name: "fra", Organization: "x"}},
			{Site: federation.Site{Name: "ams", Organization: org}}}
	}
	if f := siteName(cfg, site("surf")[:1]); f.Verdict != "" || f.Found != "is new" {
		t.Errorf("a new site: %+v", f)
	}
	if f := siteName(cfg, site("surf")); f.Verdict != "" {
		t.Errorf("our own: %+v", f)
	}
	if f := siteName(cfg, site("other")); f.Verdict != broken || !strings.Contains(f.Mend, "another name") {
		t.Errorf("another's: %+v", f)
	}
}

func TestPreflightCluster(t *testing.T) {
	node := func(name, system, host string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OperatingSystem: system},
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: host}}}}
	}
	for _, c := range []struct {
		name string
		want verdict
		cs   *fake.Clientset
	}{
		{"two", "", fake.NewSimpleClientset(node("a", "linux", "a"), node("b", "linux", "b"))},
		{"none", broken, fake.NewSimpleClientset()},
		{"one of another system", doubt, fake.NewSimpleClientset(node("a", "linux", "a"), node("w", "windows", "w"))},
		{"equal host names", doubt, fake.NewSimpleClientset(node("a", "linux", "n"), node("b", "linux", "n"))},
	} {
		if f := nodes(t.Context(), c.cs); f.Verdict != c.want {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Driver,
		Annotations: map[string]string{"meta.helm.sh/release-name": "weir"}}}
	if f := driverThere(t.Context(), fake.NewSimpleClientset(driver)); !strings.Contains(f.Found, "weir") || f.Mend == "" {
		t.Errorf("driver there: %+v", f)
	}
	if f := checkCluster(t.Context(), filepath.Join(t.TempDir(), "none"), defaultNamespace); f[0].Verdict != broken {
		t.Errorf("no kubeconfig: %+v", f)
	}
}

func TestPreflightReport(t *testing.T) {
	var out bytes.Buffer
	p := preflight{sh: &cli.Shell{Out: &out, Now: time.Now}}
	if err := p.report([]finding{{Check: "a", Found: "x"}, {Check: "b", Verdict: doubt, Found: "y", Mend: "do z"}}); err != nil {
		t.Fatal(err)
	}
	want := "ok    a  x\nwarn  b  y\n         → do z\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if err := p.report([]finding{{Check: "c", Verdict: broken, Found: "w"}}); !errors.Is(err, errPreflight) {
		t.Errorf("with a FAIL: %v", err)
	}
	if err := p.run(context.Background()); err == nil || !strings.Contains(err.Error(), "--config") {
		t.Errorf("nothing to check: %v", err)
	}
}
