// SPDX-License-Identifier: Apache-2.0

package refuse

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/test/e2e/bed"
	"github.com/weir-storage/weir/test/e2e/stage"
)

// certificates: a volume that asks for certificates, and kernels: with one of its site's machines
// it is mounted, written and read over TLS; without one, or with another's, it is not.
func (s *scene) certificates(t *testing.T) {
	if err := s.Bed.Create(s.Ctx, "a", bed.Manifest("t", 1, "a")); err != nil {
		t.Fatal(err)
	}
	b := s.Bed.Site("b")
	options := stage.DefaultMountOptions + ",xprtsec="
	// machine starts a guest that can begin TLS with a certificate; "none": it shows none.
	machine := func(name string, cert, key string) *stage.Guest {
		t.Helper()
		g, err := b.Guest(s.Ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.Kill)
		if err := s.Bed.Admit(s.Ctx, "t", "b", g.Addr()); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Output(s.Ctx, "modprobe tls"); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Start(s.Ctx, fmt.Sprintf("%s tlshd %s %s %s /x/tlshd", s.Tool, s.Bed.TLS("gb").CA, cert, key)); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Output(s.Ctx, "until [ -e /x/tlshd ]; do sleep 0.05; done"); err != nil {
			t.Fatal(err)
		}
		return g
	}
	own, err := s.Bed.Issue("org-b", "b", pki.PartClient, "node")
	if err != nil {
		t.Fatal(err)
	}
	node := machine("tn", own.Cert, own.Key)
	if out, err := s.Bed.Weir(s.Ctx, "a", "volume", "clients", "t", "--site", "b", "--certificates", "Required"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	until := time.Now().Add(30 * time.Second)
	for err = node.Mount(s.Ctx, b.Addr(), "/t", "/mnt/t", options+"mtls"); err != nil; err = node.Mount(s.Ctx, b.Addr(), "/t", "/mnt/t",
		options+"mtls") {
		if time.Now().After(until) {
			t.Fatalf("with a certificate: %v", err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	out, err := node.Output(s.Ctx, "cd /mnt/t && dd if=/dev/urandom of=f bs=1M count=8 conv=fsync status=none && sha256sum <f && "+
		"echo 3 >/proc/sys/vm/drop_caches && sha256sum <f && grep /mnt/t /proc/mounts | grep -o xprtsec=[a-z]*")
	if lines := strings.Fields(out); err != nil || len(lines) != 5 || lines[0] != lines[2] || lines[4] != "xprtsec=mtls" {
		t.Errorf("it writes and reads %q, %v", out, err)
	}
	// Another volume, which asks for nothing, is on the same connection.
	if _, err := b.Mount(s.Ctx, node, "v"); err != nil {
		t.Error(err)
	}
	// As the node plugin mounts: by mount(2) itself, and by a name of the gateway's certificate
	// that is in no DNS; by another one it does not.
	// A machine has one connection: each name has its own.
	for name, g := range map[string]*stage.Guest{"elsewhere.test": machine("te", own.Cert, own.Key),
		"gateway-b.test": machine("tp", own.Cert, own.Key)} {
		_, err := g.Output(s.Ctx, fmt.Sprintf("mkdir -p /mnt/t && mount -i -t nfs4 -o vers=4.2,addr=%s,hard,proto=tcp,noresvport,"+
			"timeo=150,retrans=2,xprtsec=mtls %s:/t /mnt/t && sha256sum </mnt/t/f", b.Addr(), name))
		if fine := name == "gateway-b.test"; (err == nil) != fine {
			t.Errorf("looking for %s in the gateway's certificate: %v", name, err)
		}
	}
	bare := machine("tx", "none", "none")
	for name, how := range map[string]string{"without TLS": "none", "without a certificate": "tls"} {
		err := bare.Mount(s.Ctx, b.Addr(), "/t", "/mnt/t", options+how)
		if err == nil {
			t.Errorf("%s the volume is mounted", name)
		}
		t.Logf("%s: %v", name, err)
	}
	s.says(t, b.Gateway(), "nfs client refused", "xprtsec=mtls")
}
