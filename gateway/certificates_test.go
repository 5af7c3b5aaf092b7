// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/users"
	"github.com/weir-storage/weir/gateway/nfs"
	nfsclient "github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/pki"
)

// TestCertificatesOfClients: a volume that asks for certificates takes requests only on connections
// of TLS whose client showed one of its site, of part client; from the next operation on, and of
// nobody else's.
func TestCertificatesOfClients(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a")
	id := c.createAt("v", manifest("v", 1), []string{"a"})
	c.router("a", id)
	c.admit("a", id)
	other := c.createAt("w", manifest("w", 1), []string{"a"})
	c.router("a", other)
	c.admit("a", other)
	ctx := within(t, 2*hang)
	requires := func(what users.Certificates) {
		t.Helper()
		c.with(func(r federation.Registry) error {
			v, rev, err := r.GetVolume(context.Background(), id)
			if err == nil {
				v.Clients = map[string]users.Policy{"a": {Certificates: what}}
				_, err = r.UpdateVolume(context.Background(), rev, v)
			}
			return err
		})
	}
	foreign, err := pki.NewAuthority("test", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	const earlier = 5 * time.Minute // certificates began so long ago
	// config is that of a client with a certificate; nil: it shows none.
	config := func(by *pki.Authority, id *pki.Identity, lasts time.Duration) *tls.Config {
		t.Helper()
		who := pki.Identity{Federation: "test", Organization: "org-a", Site: "a", Gateway: "n1", Part: pki.PartClient}
		if id != nil {
			who = *id
		}
		pair, err := by.Issue(who, nil, time.Now().Add(-earlier), lasts)
		if err != nil {
			t.Fatal(err)
		}
		own, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		cfg := &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error { // clients look at its address
			server, err := pki.PeerIdentity(s)
			if err == nil && server.Gateway != "ga" {
				err = fmt.Errorf("it is %v", server)
			}
			return err
		}}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
		if id != nil && id.Part == pki.PartUnknown {
			cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return new(tls.Certificate), nil }
		}
		return cfg
	}
	dial := func(name string, cfg *tls.Config) (*nfsclient.Client, error) {
		cl, err := nfsclient.Dial(ctx, c.nodes["a"].nfs, nfsclient.Options{Owner: name, TLS: cfg})
		if err != nil {
			return nil, err
		}
		t.Cleanup(cl.Abandon)
		return cl, cl.ReclaimComplete(ctx)
	}
	must := func(cl *nfsclient.Client, err error) *nfsclient.Client {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return cl
	}
	const hour = time.Hour
	plain := must(dial("plain", nil))
	none := pki.Identity{Federation: "test", Organization: "org-a", Site: "a", Gateway: "n1"} // then it shows none
	nobody := must(dial("nobody", config(c.ca, &none, hour)))
	node := must(dial("node", config(c.ca, nil, hour)))
	begin := func(cfg *tls.Config) error { // on a connection of its own
		t.Helper()
		raw, err := new(net.Dialer).DialContext(ctx, "tcp", c.nodes["a"].nfs)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = raw.Close() }()
		return startTLS(raw, cfg)
	}
	for protocol, want := range map[string]bool{"": true, "sunrpc": true, "h2": false} { // tlshd names none
		cfg := config(c.ca, nil, hour)
		if protocol != "" {
			cfg.NextProtos = []string{protocol}
		}
		if err := begin(cfg); (err == nil) != want {
			t.Errorf("a client that names protocol %q: %v", protocol, err)
		}
	}
	file := func(cl *nfsclient.Client, volume string) (*nfsclient.File, error) {
		root, err := cl.Mount(ctx, volume)
		if err != nil {
			return nil, err
		}
		return cl.Open(ctx, root.FH, "f", nfsclient.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_BOTH, Create: true})
	}
	files := map[string]*nfsclient.File{}
	for name, cl := range map[string]*nfsclient.Client{"plain": plain, "nobody": nobody, "node": node} {
		if files[name], err = file(cl, "v"); err != nil {
			t.Fatalf("%s, while nobody needs a certificate: %v", name, err)
		}
	}
	refused := func() uint64 { return c.nodes["a"].gateway.nfs.Counters().Refused[nfs.Certificate] }
	write := func(name string) error {
		_, err := files[name].WriteAt(ctx, []byte(strings.Repeat(name, 10000)), 0, xdr.FILE_SYNC4)
		return err
	}
	requires(users.CertificatesRequired)
	for _, name := range []string{"plain", "nobody"} {
		c.until(name+" is refused, with a file that is open", func() error {
			if err := write(name); !errors.Is(err, xdr.NFS4ERR_ACCESS) {
				return fmt.Errorf("it is told %w", err)
			}
			return nil
		})
	}
	before := refused()
	for name, cl := range map[string]*nfsclient.Client{"plain": plain, "nobody": nobody} {
		if _, err := file(cl, "v"); !errors.Is(err, xdr.NFS4ERR_ACCESS) {
			t.Errorf("%s opens a file: %v", name, err)
		}
		if _, err := file(cl, "w"); err != nil {
			t.Errorf("%s, at a volume that asks for nothing: %v", name, err)
		}
	}
	if n := refused() - before; n != 2 {
		t.Errorf("%d refusals are counted, want 2", n)
	}
	if err := write("node"); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	got := make([]byte, 40000)
	if n, _, err := files["node"].ReadAt(ctx, got, 0); err != nil || string(got[:n]) != strings.Repeat("node", 10000) {
		t.Errorf("read back: %d bytes, %v", n, err)
	}
	for what, cfg := range map[string]*tls.Config{
		"another site's": config(c.ca, &pki.Identity{Federation: "test", Organization: "org-a", Site: "b", Gateway: "n",
			Part: pki.PartClient}, hour),
		"another organization's": config(c.ca, &pki.Identity{Federation: "test", Organization: "org-b", Site: "a", Gateway: "n",
			Part: pki.PartClient}, hour),
		"of a gateway": config(c.ca, &pki.Identity{Federation: "test", Organization: "org-a", Site: "a", Gateway: "ga",
			Part: pki.PartGateway}, hour),
		"of a person": config(c.ca, &pki.Identity{Federation: "test", Organization: "org-a", Site: "a", Gateway: "p",
			Part: pki.PartPerson}, hour),
		"of nobody's authority": config(foreign, nil, hour),
		"that has ended":        config(c.ca, nil, earlier-time.Second),
	} {
		before := refused()
		if err := begin(cfg); err == nil {
			t.Errorf("a certificate %s is taken", what)
		}
		c.until("the refusal of a certificate "+what+" is counted once", func() error {
			if n := refused() - before; n != 1 {
				return fmt.Errorf("it is %d times", n)
			}
			return nil
		})
	}
	// One that ends while it is used.
	brief := must(dial("brief", config(c.ca, nil, earlier+10*time.Second)))
	f, err := file(brief, "v")
	if err != nil {
		t.Fatal(err)
	}
	c.until("the connection ends with its certificate", func() error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := f.GetAttr(ctx); err == nil {
			return errors.New("its client is answered")
		}
		return nil
	})
	requires(users.CertificatesNone)
	c.until("nobody needs a certificate any more", func() error { return write("plain") })
}

// startTLS asks a server for TLS, and begins it.
func startTLS(raw net.Conn, cfg *tls.Config) error {
	var e xdr.Encoder
	e.CallHeader(xdr.CallHeader{XID: 1, Program: xdr.NFS4_PROGRAM, Version: xdr.NFS_V4, Cred: xdr.OpaqueAuth{Flavor: xdr.AUTH_TLS}})
	if err := raw.SetDeadline(time.Now().Add(hang)); err != nil {
		return err
	}
	if err := xdr.WriteRecord(raw, &e); err != nil {
		return err
	}
	if _, err := xdr.ReadRecord(raw, 1000); err != nil {
		return err
	}
	conn := tls.Client(raw, cfg)
	if err := conn.Handshake(); err != nil {
		return err
	}
	e = xdr.Encoder{}
	e.CallHeader(xdr.CallHeader{XID: 2, Program: xdr.NFS4_PROGRAM, Version: xdr.NFS_V4}) // NULL
	if err := xdr.WriteRecord(conn, &e); err != nil {
		return err
	}
	_, err := xdr.ReadRecord(conn, 1000)
	return err
}
