// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMountinfo(t *testing.T) {
	text := `22 1 0:20 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
this line is nothing that is known
36 35 0:52 / /var/lib/kubelet/a\040b rw,noexec shared:1 master:2 - nfs4 10.0.0.1:/team.data rw,vers=4.2
37 35 0:53 /sub\134x /empty ro - tmpfs  rw
38 35 0:53 / /var/lib/kubelet/a\040b ro,relatime - nfs4 10.0.0.2:/v ro
`
	all := parseMountinfo(text)
	if len(all) != 4 || all[2].Root != `/sub\x` || all[2].FsType != "tmpfs" || all[2].Source != "" {
		t.Fatalf("%v", all)
	}
	m, ok := At(all, "/var/lib/kubelet/a b")
	if !ok || !m.ReadOnly() || m.Source != "10.0.0.2:/v" || m.Device != "0:53" {
		t.Errorf("on top is %v, %v", m, ok)
	}
	if all[1].ReadOnly() || all[1].FsType != "nfs4" || all[1].Source != "10.0.0.1:/team.data" {
		t.Errorf("%v", all[1])
	}
	if !ShownElsewhere(all, m) || ShownElsewhere(all, all[1]) {
		t.Error("which file systems are mounted twice is not known")
	}
}

func TestIdentifierSetter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "identifier")
	must(t, os.WriteFile(file, []byte("(null)\n"), 0o600))
	set := IdentifierSetter(file)
	must(t, set("cluster/node"))
	text, err := os.ReadFile(file)
	if err != nil || string(text) != "cluster/node" {
		t.Errorf("%q, %v", text, err)
	}
	must(t, os.Chmod(file, 0o400))
	must(t, set("cluster/node")) // an identity that is there already is not written
	if err := IdentifierSetter(filepath.Join(t.TempDir(), "none"))("x"); err == nil || !strings.Contains(err.Error(), "NFS client") {
		t.Errorf("without a file: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
