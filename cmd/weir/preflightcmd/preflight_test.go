// SPDX-License-Identifier: Apache-2.0

package preflightcmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
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
	"github.com/weir-storage/weir/pki"
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

// What a node needs to mount over TLS: each thing that may be missing is told by itself.
func TestPreflightTLS(t *testing.T) {
	now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	ca, err := pki.NewAuthority("demo", now, 48*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	root, err := ca.Pair()
	if err != nil {
		t.Fatal(err)
	}
	files := func(part pki.Part) map[string]string {
		pair, err := ca.Issue(pki.Identity{Federation: "demo", Organization: "SURF", Site: "ams", Gateway: "w1", Part: part}, nil, now,
			time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return map[string]string{"proc/net/tls_stat": "", "proc/7/comm": "tlshd\n", "etc/weir/ca.crt": string(root.Cert),
			"etc/weir/w1.crt": string(pair.Cert), "etc/weir/w1.key": string(pair.Key),
			"etc/tlshd.conf": "[debug]\nloglevel=0\n[authenticate.client]\n# x509.certificate=/old\nx509.truststore = /etc/weir/ca.crt\n" +
				"x509.certificate=/etc/weir/w1.crt\nx509.private_key=/etc/weir/w1.key\n[authenticate.server]\n"}
	}
	none := map[string]string{}
	for _, c := range []struct {
		name, kernel string
		part         pki.Part
		with         map[string]string // "-": it is not there
		later        time.Duration
		verdicts     [3]verdict
		says         string
	}{
		{"all is there", "6.12.1-cloud", pki.PartClient, none, 0, [3]verdict{fine, fine, fine},
			"weir://demo/SURF/ams/w1, until 2026-05-04T11:00:00Z"},
		{"a module", "7.0.0", pki.PartClient,
			map[string]string{"proc/net/tls_stat": "-", "lib/modules/7.0.0/kernel/net/tls/tls.ko.zst": ""}, 0,
			[3]verdict{fine, fine, fine}, "kernel 7.0.0"},
		{"no module", "6.5.0", pki.PartClient, map[string]string{"proc/net/tls_stat": "-"}, 0, [3]verdict{broken, fine, fine},
			"CONFIG_TLS"},
		{"an old kernel", "6.4.9", pki.PartClient, none, 0, [3]verdict{broken, fine, fine}, "Linux 6.5"},
		{"no tlshd", "6.5.0", pki.PartClient, map[string]string{"proc/7/comm": "tlshd-helper"}, 0, [3]verdict{fine, broken, fine},
			"ktls-utils"},
		{"no configuration", "6.5.0", pki.PartClient, map[string]string{"etc/tlshd.conf": "-"}, 0, [3]verdict{fine, fine, broken},
			"neither /etc/tlshd/config nor /etc/tlshd.conf"},
		{"no certificate", "6.5.0", pki.PartClient, map[string]string{"etc/tlshd/config": "[authenticate.server]\nx509.truststore=/x\n"}, 0,
			[3]verdict{fine, fine, broken}, "/etc/tlshd/config has no x509.truststore"},
		{"a path in quotes", "6.5.0", pki.PartClient, map[string]string{"etc/tlshd.conf": "[authenticate.client]\n" +
			"x509.truststore=/etc/weir/ca.crt\nx509.certificate=\"/etc/weir/w1.crt\"\nx509.private_key=/etc/weir/w1.key\n"}, 0,
			[3]verdict{fine, fine, broken}, "w1.crt\""},
		{"no such file", "6.5.0", pki.PartClient, map[string]string{"etc/weir/w1.key": "-"}, 0, [3]verdict{fine, fine, broken}, "w1.key"},
		{"another part's", "6.5.0", pki.PartNode, none, 0, [3]verdict{fine, fine, broken}, "of part client"},
		{"it has ended", "6.5.0", pki.PartClient, none, 2 * time.Hour, [3]verdict{fine, fine, broken}, "ended at 2026-05-04T11:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, all := t.TempDir(), files(c.part)
			maps.Copy(all, c.with)
			for name, text := range all {
				if text == "-" {
					continue
				}
				p := filepath.Join(dir, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			m := machine{root: dir, release: func() (string, error) { return c.kernel, nil }}
			said := ""
			for i, f := range m.nfsTLS(now.Add(c.later)) {
				if said += f.Found + " " + f.Mend + "\n"; cmp.Or(f.Verdict, fine) != c.verdicts[i] {
					t.Errorf("found %+v", f)
				}
			}
			if !strings.Contains(said, c.says) {
				t.Errorf("%q does not say %q", said, c.says)
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
