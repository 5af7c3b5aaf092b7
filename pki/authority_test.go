// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	grpccreds "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weir-storage/weir/pki"
)

func certificates(text []byte) (all []*x509.Certificate, rest []byte) {
	for {
		b, after := pem.Decode(text)
		if b == nil {
			return all, text
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return all, text
		}
		all, text = append(all, c), after
	}
}

// One authority takes over from another while servers and clients run, as gateways use them: over
// gRPC, with credentials that were made once. What has only one end done works; in the end the old
// authority's certificates are not accepted any more.
func TestAuthorityIsReplaced(t *testing.T) {
	w, log := newWall(), new(record)
	before, after := authority(t, "surf"), authority(t, "surf")
	both := slices.Concat(root(t, before), root(t, after))
	server, client := newSecret(t), newSecret(t)
	us, them := id("surf", "SURF", "ams-1"), id("surf", "SURF", "ein-1")
	from := func(a *pki.Authority, who pki.Identity) pki.Pair { return issue(t, a, who, now, time.Hour) }
	server.put(root(t, before), from(before, us))
	client.put(root(t, before), from(before, them))

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(grpccreds.NewTLS(server.load(w.now, log).Server(pki.Expect{}))))
	healthpb.RegisterHealthServer(s, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	ends := client.load(w.now, log)
	dialers := map[string]grpccreds.TransportCredentials{
		"gateway":  grpccreds.NewTLS(ends.Client(pki.Expect{Site: "ams", Gateway: "ams-1"})),
		"node":     grpccreds.NewTLS(ends.ClientByIdentity(pki.Expect{Site: "ams"})),
		"registry": grpccreds.NewTLS(ends.Client(pki.Expect{}, "127.0.0.1")),
	}
	call := func(c grpccreds.TransportCredentials) error {
		t.Helper()
		conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(c))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, err = healthpb.NewHealthClient(conn).Check(t.Context(), new(healthpb.HealthCheckRequest))
		return err
	}
	works := func(when string) {
		t.Helper()
		w.advance(3 * time.Second)
		for name, c := range dialers {
			if err := call(c); err != nil {
				t.Errorf("%s: as a %s: %v", when, name, err)
			}
		}
	}
	works("at first")
	stays, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(dialers["gateway"]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stays.Close() })
	check := func() error {
		_, err := healthpb.NewHealthClient(stays).Check(t.Context(), new(healthpb.HealthCheckRequest))
		return err
	}
	if err := check(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name     string
		of       *secret
		ca       []byte
		identity pki.Pair
		more     bool // the next comes before any handshake
	}{
		{"the server trusts both", server, both, from(before, us), false},
		{"the client trusts both", client, both, from(before, them), true},
		{"the server's is of the new one", server, both, from(after, us), false},
		{"the client's is of the new one", client, both, from(after, them), false},
		{"the client trusts only the new one", client, root(t, after), from(after, them), false},
		{"the server trusts only the new one", server, root(t, after), from(after, us), false},
	} {
		step.of.put(step.ca, step.identity)
		if !step.more {
			works(step.name)
		}
	}
	if err := check(); err != nil {
		t.Errorf("the connection of before has ended: %v", err)
	}
	old := grpccreds.NewTLS(credentialsOf(t, before, both, them).Client(pki.Expect{Site: "ams", Gateway: "ams-1"}))
	if err := call(old); err == nil {
		t.Error("a client of the old authority is accepted")
	}
	if text := log.take(); strings.Count(text, "in force") != 6 || strings.Contains(text, "ERROR") {
		t.Errorf("six times a set was changed, and the log says %s", text)
	}
}

// credentialsOf are issued by a, and trust what ca has.
func credentialsOf(t *testing.T, a *pki.Authority, ca []byte, who pki.Identity) *pki.Credentials {
	t.Helper()
	c, err := pki.Load(ca, issue(t, a, who, now, time.Hour), clock)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
