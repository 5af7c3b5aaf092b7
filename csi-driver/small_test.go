// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
)

func TestHandles(t *testing.T) {
	for handle, want := range map[string]bool{
		"fed/" + testCluster: true, "fed/" + strings.ToUpper(testCluster): false, "fed/x": false, testCluster: false, "/" + testCluster: false,
		"fed/" + testCluster + "/x": false, "": false,
	} {
		f, id, ok := parseHandle(handle)
		if ok != want || ok && handleOf(f, id) != handle {
			t.Errorf("%s: %s %s %v", handle, f, id, ok)
		}
	}
	for name, want := range map[string]string{"pvc-1": "pvc-1", "a.b": "a.b", "A": "csi-u", strings.Repeat("a", 64): "csi-u", "a.b.c": "csi-u"} {
		if got := federationName(name, "u"); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestMountFlags(t *testing.T) {
	for flags, want := range map[string]string{
		"":                               "",
		"hard,rw,proto=tcp":              "",
		"ro":                             "read-only",
		"noexec,nosuid":                  "vfs noexec nosuid",
		"nconnect=8,lookupcache=none":    "nfs nconnect=8 lookupcache=none",
		"vers=4.1":                       "version 4.1",
		"soft":                           "hard",
		"softerr":                        "hard",
		"nolock":                         "one node only",
		"nfsvers=3":                      "4.1 and 4.2",
		"nconnect=17":                    "1 to 16",
		"rsize=big":                      "rsize=big",
		"addr=10.0.0.1":                  "addr=10.0.0.1",
		"port=1":                         "port=1",
		"sec=krb5":                       "sec=krb5",
		"context=system_u:object_r:x:s0": "context",
	} {
		m, err := parseMountFlags([]string{flags})
		if err != nil {
			wantCode(t, err, codes.InvalidArgument, want, strings.Split(flags, "=")[0])
			continue
		}
		var got []string
		if m.readOnly {
			got = append(got, "read-only")
		}
		if m.version != "" {
			got = append(got, "version", m.version)
		}
		if m.vfs != nil {
			got = append(append(got, "vfs"), m.vfs...)
		}
		if m.nfs != nil {
			got = append(append(got, "nfs"), m.nfs...)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %q, want %q", flags, s, want)
		}
	}
}

func TestMountData(t *testing.T) {
	six := netip.MustParseAddr("fd00::9")
	got := mountData("4.2", six, 12049, 2, mountFlags{nfs: []string{"nconnect=4", "noac"}})
	if want := "vers=4.2,addr=fd00::9,hard,proto=tcp6,noresvport,timeo=150,retrans=2,port=12049,nconnect=2,nconnect=4,noac"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if s := mountSource(six, "/v"); s != "[fd00::9]:/v" || !isExport(MountPoint{Source: s}, Export{Path: "/v"}) || isExport(MountPoint{Source: s}, Export{Path: "/w"}) {
		t.Errorf("source %s", s)
	}
}

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
	m, ok := at(all, "/var/lib/kubelet/a b")
	if !ok || !m.ReadOnly() || m.Source != "10.0.0.2:/v" || m.Device != "0:53" {
		t.Errorf("on top is %v, %v", m, ok)
	}
	if all[1].ReadOnly() || all[1].FsType != "nfs4" || all[1].Source != "10.0.0.1:/team.data" {
		t.Errorf("%v", all[1])
	}
	if !shownElsewhere(all, m) || shownElsewhere(all, all[1]) {
		t.Error("which file systems are mounted twice is not known")
	}
}

func TestIdentifierFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "identifier")
	wantOK(t, os.WriteFile(file, []byte("(null)\n"), 0o600))
	set := IdentifierFile(file)
	wantOK(t, set("cluster/node"))
	text, err := os.ReadFile(file)
	if err != nil || string(text) != "cluster/node" {
		t.Errorf("%q, %v", text, err)
	}
	wantOK(t, os.Chmod(file, 0o400))
	wantOK(t, set("cluster/node")) // what is so already is not written
	if err := IdentifierFile(filepath.Join(t.TempDir(), "none"))("x"); err == nil || !strings.Contains(err.Error(), "NFS client") {
		t.Errorf("without a file: %v", err)
	}
}

func TestInflight(t *testing.T) {
	var f inflight
	alone, err := f.alone("a")
	wantOK(t, err)
	_, err = f.shared("a")
	wantCode(t, err, codes.Aborted, "a")
	_, err = f.alone("a")
	wantCode(t, err, codes.Aborted)
	alone()
	first, err := f.shared("a")
	wantOK(t, err)
	second, err := f.shared("a")
	wantOK(t, err)
	first()
	_, err = f.alone("a")
	wantCode(t, err, codes.Aborted)
	second()
	if _, err = f.alone("a"); err != nil || len(f.held) != 1 {
		t.Errorf("%v, %v", err, f.held)
	}
}

// TestCondition decodes what a kubelet of before CSI 1.13 finds: in a message of its own, field 2.
func TestCondition(t *testing.T) {
	for _, p := range []*Problem{nil, {Reason: "HomeLost", Message: "site there is lost", Inaccessible: true}} {
		r := &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Total: 1}}}
		setCondition(r, p)
		wire, err := proto.Marshal(r)
		wantOK(t, err)
		var abnormal bool
		var message string
		for b := wire; len(b) > 0; {
			number, kind, n := protowire.ConsumeTag(b)
			b = b[n:]
			n = protowire.ConsumeFieldValue(number, kind, b)
			if n < 0 {
				t.Fatal(protowire.ParseError(n))
			}
			if number == 2 {
				c, _ := protowire.ConsumeBytes(b)
				for len(c) > 0 {
					number, kind, n := protowire.ConsumeTag(c)
					c = c[n:]
					switch n = protowire.ConsumeFieldValue(number, kind, c); number {
					case 1:
						v, _ := protowire.ConsumeVarint(c)
						abnormal = v == 1
					case 2:
						message, _ = protowire.ConsumeString(c)
					}
					c = c[n:]
				}
			}
			b = b[n:]
		}
		if abnormal != (p != nil) || message == "" || p != nil && message != "HomeLost: site there is lost" {
			t.Errorf("%v: %v %q", p, abnormal, message)
		}
		if back := new(csi.NodeGetVolumeStatsResponse); proto.Unmarshal(wire, back) != nil || len(back.GetUsage()) != 1 {
			t.Error("CSI 1.13 does not read it")
		}
	}
}

func TestProblems(t *testing.T) {
	for reason, want := range map[string]csi.VolumeHealthErrorType{
		v1alpha1.ReasonHomeLost: csi.VolumeHealthErrorType_INACCESSIBLE, v1alpha1.ReasonWritesWait: csi.VolumeHealthErrorType_INACCESSIBLE,
		v1alpha1.ReasonRegistryUnavailable: csi.VolumeHealthErrorType_DEGRADED, v1alpha1.ReasonUnplaceable: csi.VolumeHealthErrorType_DEGRADED,
	} {
		v := &v1alpha1.GeoVolumeContent{}
		v.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: "m"}}
		h := health("fed/1", problemOf(v)).GetHealthStatuses()
		if len(h) != 1 || h[0].GetStatus() != want || h[0].GetReason() != reason || h[0].GetMessage() != "m" {
			t.Errorf("%s: %v", reason, h)
		}
		v.Status.Conditions[0].Status, v.Status.Conditions[0].Reason = metav1.ConditionTrue, v1alpha1.ReasonDegraded
		if p := problemOf(v); p == nil || p.Inaccessible {
			t.Errorf("degraded: %v", p)
		}
		v.Status.Conditions[0].Reason = v1alpha1.ReasonReady
		if p := problemOf(v); p != nil {
			t.Errorf("ready: %v", p)
		}
	}
}

func TestHealthOfNode(t *testing.T) {
	s := newStage(t, manyWriters)
	n := newNode(t, nodeConfig(s.w, &table{}))
	health := func(handle string) (string, error) {
		r, err := n.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: handle, StagingTargetPath: s.staging})
		if h := r.GetVolumeHealth().GetHealthStatuses(); len(h) > 0 {
			return h[0].GetReason(), err
		}
		return "", err
	}
	if h, err := health(s.handle); err != nil || h != "NotMounted" {
		t.Errorf("before it is staged: %s, %v", h, err)
	}
	wantOK(t, s.stage(n))
	if h, err := health(s.handle); err != nil || h != "" {
		t.Errorf("staged: %s, %v", h, err)
	}
	_, err := health(handleOf(testFederation, testCluster))
	wantCode(t, err, codes.NotFound)
	r, err := n.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: s.handle, VolumePath: s.staging})
	wantOK(t, err)
	if u := r.GetUsage(); len(u) != 1 || u[0].GetUnit() != csi.VolumeUsage_BYTES || u[0].GetTotal() != 10<<20 || u[0].GetUsed() != 1000 || u[0].GetAvailable() != 10<<20-1000 {
		t.Errorf("usage %v", u)
	}
}

func TestConfigurations(t *testing.T) {
	w := newWorld(t)
	for field, change := range map[string]func(*ControllerConfig){
		"cluster": func(c *ControllerConfig) { c.Cluster = "prod" }, "federation": func(c *ControllerConfig) { c.Federation = "" },
		"site": func(c *ControllerConfig) { c.Site = "" }, "client": func(c *ControllerConfig) { c.Client = nil },
	} {
		cfg := controllerConfig(w)
		change(&cfg)
		if _, err := NewController(cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("controller without %s: %v", field, err)
		}
	}
	for field, change := range map[string]func(*NodeConfig){
		"cluster": func(c *NodeConfig) { c.Cluster = "" }, "nodeUID": func(c *NodeConfig) { c.NodeUID = "" },
		"nconnect": func(c *NodeConfig) { c.NConnect = 17 }, "clock": func(c *NodeConfig) { c.After = nil },
	} {
		cfg := nodeConfig(w, &table{})
		change(&cfg)
		if _, err := NewNode(cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("node with a wrong %s: %v", field, err)
		}
	}
}
