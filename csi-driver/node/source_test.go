// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"testing"

	"github.com/weir-storage/weir/csi-driver/mount"
)

func TestMountData(t *testing.T) {
	six := netip.MustParseAddr("fd00::9")
	got := mountData("4.2", six, 12049, 2, true, []string{"nconnect=4", "noac"})
	const want = "vers=4.2,addr=fd00::9,hard,proto=tcp6,noresvport,timeo=150,retrans=2,port=12049,nconnect=2,xprtsec=mtls," +
		"nconnect=4,noac"
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s := mountSource(six, "", "/v")
	p := mount.Point{Source: s}
	if s != "[fd00::9]:/v" || !isExport(p, Export{Path: "/v"}) || isExport(p, Export{Path: "/w"}) {
		t.Errorf("source %s", s)
	}
}
