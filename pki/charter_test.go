// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/pki/transport"
)

func ofOrganization(t *testing.T, name string) *pki.Authority {
	t.Helper()
	a, err := pki.NewOrganizationAuthority("surf", name, now, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func charter(serial uint64, all ...pki.Organization) pki.Charter {
	c := pki.Charter{Federation: "surf", Serial: serial, Made: now}
	for _, o := range all {
		c.Set(o)
	}
	return c
}

func sign(t *testing.T, a *pki.Authority, c pki.Charter) string {
	t.Helper()
	s, err := a.SignCharter(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func member(t *testing.T, name string, authorities ...*pki.Authority) pki.Organization {
	o := pki.Organization{Name: name}
	for _, a := range authorities {
		o.Authorities = append(o.Authorities, string(root(t, a)))
	}
	return o
}

// Each certificate is shown to a server that knows a charter, and to one that knows none.
func TestWhoVouches(t *testing.T) {
	founding := authority(t, "surf")
	a, b, old := ofOrganization(t, "A"), ofOrganization(t, "B"), ofOrganization(t, "A")
	other := authority(t, "surf")
	who := func(org string, part pki.Part) pki.Identity {
		return pki.Identity{Federation: "surf", Organization: org, Site: "s", Gateway: "x", Part: part}
	}
	// A certificate of B's authority in the name of A: Issue refuses to make one.
	lies := func(part pki.Part) pki.Pair {
		t.Helper()
		p, err := pki.Forge(b, who("A", part), now)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	pair, err := pki.NewAuthority("surf", now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	in := sign(t, founding, charter(1, member(t, "A", a, old), member(t, "B", b), member(t, "F", founding)))
	expelled := member(t, "B", b)
	expelled.Expelled = &pki.Expulsion{At: now, Why: "a test"}
	out := sign(t, founding, charter(2, member(t, "A", a), expelled, member(t, "F", founding)))
	for _, c := range []struct {
		name string
		cert pki.Pair
		// whether it is accepted without a charter, with the first, and with the second
		none, first, second bool
	}{
		{"of its own authority", issue(t, a, who("A", pki.PartGateway), now, time.Hour), false, true, true},
		{"of an authority that takes over", issue(t, old, who("A", pki.PartPerson), now, time.Hour), false, true, false},
		{"of one that was expelled", issue(t, b, who("B", pki.PartGateway), now, time.Hour), false, true, false},
		{"of another organization's authority", lies(pki.PartGateway), false, false, false},
		{"an administrator of an organization's authority", lies(pki.PartAdministrator), false, false, false},
		{"a member of the registry of an organization's authority", lies(pki.PartRegistry), false, false, false},
		{"of the founding authority, which does not vouch", issue(t, founding, who("A", pki.PartGateway), now, time.Hour), true,
			false, false},
		{"of the founding authority, which vouches", issue(t, founding, who("F", pki.PartGateway), now, time.Hour), true, true, true},
		{"of an organization that is not there", issue(t, founding, who("N", pki.PartPerson), now, time.Hour), true, false, false},
		{"a member of the registry", issue(t, founding, who("A", pki.PartRegistry), now, time.Hour), true, true, true},
		{"a member of the registry that is not there", issue(t, founding, who("N", pki.PartRegistry), now, time.Hour), true, true, true},
		{"an administrator who was expelled", issue(t, founding, who("B", pki.PartAdministrator), now, time.Hour), true, true, false},
		{"of another federation's authority", issue(t, other, who("F", pki.PartGateway), now, time.Hour), false, false, false},
		{"of an authority of nobody", issue(t, pair, who("A", pki.PartGateway), now, time.Hour), false, false, false},
	} {
		server := credentialsOf(t, founding, root(t, founding), who("F", pki.PartGateway))
		for i, want := range []bool{c.none, c.first, c.second} {
			if i > 0 {
				if news, err := server.Adopt([]string{in, out}[i-1]); err != nil || !news {
					t.Fatal(news, err)
				}
			}
			client, err := pki.Load(slices.Concat(root(t, founding), root(t, a), root(t, b), root(t, old), root(t, other), root(t,
				pair)), c.cert,
				clock)
			if err != nil {
				client, err = pki.LoadAnyway(c.cert, root(t, founding), clock)
			}
			if err != nil {
				t.Fatal(c.name, err)
			}
			_, serr, _ := connect(t, server.Server(pki.Expect{}), client.ClientByIdentity(pki.Expect{Site: "s"}))
			if (serr == nil) != want {
				t.Errorf("%s, with charter %d: %v, want accepted: %v", c.name, i, serr, want)
			}
		}
	}
}

// Of its own organization a process accepts those whom the authority in its file vouches for, also
// when the organization was expelled; and nobody else by that file.
func TestOwnOrganizationGoesOn(t *testing.T) {
	founding, a, b := authority(t, "surf"), ofOrganization(t, "A"), ofOrganization(t, "B")
	ours := slices.Concat(root(t, a), root(t, founding))
	server := credentialsOf(t, a, ours, id("surf", "A", "ga"))
	if _, err := server.Adopt(sign(t, founding, charter(1, member(t, "B", b)))); err != nil {
		t.Fatal(err)
	}
	if !server.Expelled("A") || server.Expelled("B") || !server.Expelled("C") {
		t.Error("who is expelled?")
	}
	node := credentialsOf(t, a, ours, id("surf", "A", "node"))
	if _, serr, cerr := connect(t, server.Server(pki.Expect{}), node.ClientByIdentity(pki.Expect{Site: "ams"})); serr != nil ||
		cerr != nil {
		t.Error(serr, cerr)
	}
	theirs := credentialsOf(t, b, slices.Concat(root(t, b), root(t, founding)), id("surf", "B", "gb"))
	if _, err := theirs.Adopt(sign(t, founding, charter(1, member(t, "B", b)))); err != nil {
		t.Fatal(err)
	}
	_, serr, cerr := connect(t, theirs.Server(pki.Expect{}), server.ClientByIdentity(pki.Expect{Site: "ams"}))
	if serr == nil || cerr == nil || !strings.Contains(serr.Error(), "not of federation surf") {
		t.Errorf("%v, %v", serr, cerr)
	}
}

func TestCharterIsRefused(t *testing.T) {
	founding, a := authority(t, "surf"), ofOrganization(t, "A")
	second := sign(t, founding, charter(2, member(t, "A", a)))
	parts := strings.Split(second, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"weir-charter"}`)) + "." + parts[1] + "."
	pair, err := founding.Pair()
	if err != nil {
		t.Fatal(err)
	}
	typed := func(typ jose.ContentType, text string) string {
		t.Helper()
		s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: pki.KeyOf(t, pair)}, new(jose.SignerOptions).WithType(typ))
		if err != nil {
			t.Fatal(err)
		}
		o, err := s.Sign([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		out, err := o.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	foreign, err := pki.NewAuthority("sara", now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := foreign.SignCharter(pki.Charter{Federation: "sara", Serial: 9})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"nothing":                 "",
		"no signature":            parts[0] + "." + parts[1] + ".",
		"algorithm none":          none,
		"a byte changed":          parts[0] + "." + parts[1][:20] + "A" + parts[1][21:] + "." + parts[2],
		"another founder":         sign(t, authority(t, "surf"), charter(3, member(t, "A", a))),
		"another federation":      elsewhere,
		"signed for another use":  typed("weir-record", `{"federation":"surf","serial":3,"organizations":[]}`),
		"of another federation":   typed("weir-charter", `{"federation":"sara","serial":3,"organizations":[]}`),
		"a field of later":        typed("weir-charter", `{"federation":"surf","serial":3,"organizations":[],"more":1}`),
		"serial 0":                typed("weir-charter", `{"federation":"surf","serial":0,"organizations":[]}`),
		"no authority":            typed("weir-charter", `{"federation":"surf","serial":3,"organizations":[{"name":"A"}]}`),
		"twice":                   typed("weir-charter", `{"federation":"surf","serial":3,"organizations":[{"name":"A"},{"name":"A"}]}`),
		"an older one":            sign(t, founding, charter(1, member(t, "A", a))),
		"another of that serial":  sign(t, founding, charter(2)),
		"more than a record is":   strings.Repeat("x", 1<<20),
		"signed by the other one": func() string { _, err := a.SignCharter(charter(3)); return err.Error() }(),
	} {
		c := credentialsOf(t, founding, root(t, founding), id("surf", "F", "g"))
		if news, err := c.Adopt(second); err != nil || !news {
			t.Fatal(news, err)
		}
		if news, err := c.Adopt(text); news || !errors.Is(err, pki.ErrCharter) {
			t.Errorf("%s: %v %v", name, news, err)
		}
		if is, ok := c.Charter(); !ok || is.Serial != 2 || c.Expelled("A") {
			t.Errorf("%s: now it is %+v", name, is)
		}
		if news, err := c.Adopt(second); news || err != nil {
			t.Errorf("the same again: %v %v", news, err)
		}
	}
}

// What can be seen when it is signed is not signed.
func TestCharterIsNotSigned(t *testing.T) {
	founding, a := authority(t, "surf"), ofOrganization(t, "A")
	leaf := issue(t, founding, id("surf", "F", "g"), now, time.Hour)
	for name, c := range map[string]pki.Charter{
		"another federation":  {Federation: "sara", Serial: 1},
		"no serial":           {Federation: "surf"},
		"another's authority": charter(1, member(t, "B", a)),
		"no certificate":      charter(1, pki.Organization{Name: "A", Authorities: []string{"x"}}),
		"no authority's":      charter(1, pki.Organization{Name: "A", Authorities: []string{string(leaf.Cert)}}),
		"a name with a slash": charter(1, member(t, "A/B", founding)),
	} {
		if s, err := founding.SignCharter(c); !errors.Is(err, pki.ErrInvalid) {
			t.Errorf("%s: %q, %v", name, s, err)
		}
	}
}

// A charter is kept, and one that cannot be read lets nobody start.
func TestCharterIsKept(t *testing.T) {
	founding, a := authority(t, "surf"), ofOrganization(t, "A")
	open := func() *pki.Credentials { return credentialsOf(t, founding, root(t, founding), id("surf", "A", "g")) }
	c := open()
	var kept string
	if err := c.KeepCharter("", func(s string) error { kept = s; return nil }); err != nil {
		t.Fatal(err)
	}
	second := sign(t, founding, charter(2, member(t, "A", a)))
	if _, err := c.Adopt(second); err != nil || kept != second {
		t.Fatal(err, kept)
	}
	c = open()
	if err := c.KeepCharter(kept, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Adopt(sign(t, founding, charter(1))); !errors.Is(err, pki.ErrCharter) {
		t.Errorf("an older one after a restart: %v", err)
	}
	if err := open().KeepCharter(kept[:len(kept)-9], nil); !errors.Is(err, pki.ErrCharter) {
		t.Errorf("one that was damaged: %v", err)
	}
	full := errors.New("disk full")
	c = open()
	if err := c.KeepCharter("", func(string) error { return full }); err != nil {
		t.Fatal(err)
	}
	if news, err := c.Adopt(second); !news || !errors.Is(err, full) || c.Expelled("A") || !c.Expelled("B") {
		t.Errorf("%v %v: it counts all the same", news, err)
	}
	if news, err := c.Adopt(second); news || !errors.Is(err, full) {
		t.Errorf("%v %v: it is tried again", news, err)
	}
	full = nil
	if news, err := c.Adopt(second); news || err != nil {
		t.Errorf("%v %v", news, err)
	}
}

// serve answers health checks over gRPC until the test ends, and returns where.
func serve(t *testing.T, c *pki.Credentials) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(transport.Server(c, pki.Expect{})))
	healthpb.RegisterHealthServer(s, health.NewServer())
	go func() { _ = s.Serve(l) }() // ends with Stop
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// watch opens a stream to a server, which has answered once.
func watch(t *testing.T, c *pki.Credentials, at, peer string) healthpb.Health_WatchClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+at,
		grpc.WithTransportCredentials(transport.Client(c, c.Client(pki.Expect{Site: "ams", Gateway: peer}))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	s, err := healthpb.NewHealthClient(conn).Watch(ctx, new(healthpb.HealthCheckRequest))
	if err == nil {
		_, err = s.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Connections of an organization that is expelled end, at servers and at clients, and no others do.
func TestConnectionsEnd(t *testing.T) {
	founding, a, b := authority(t, "surf"), ofOrganization(t, "A"), ofOrganization(t, "B")
	trust := func(own *pki.Authority) []byte { return slices.Concat(root(t, own), root(t, founding)) }
	ca := credentialsOf(t, a, trust(a), id("surf", "A", "ga"))
	cb := credentialsOf(t, b, trust(b), id("surf", "B", "gb"))
	ca2 := credentialsOf(t, a, trust(a), id("surf", "A", "ga2"))
	first := sign(t, founding, charter(1, member(t, "A", a), member(t, "B", b)))
	for _, c := range []*pki.Credentials{ca, cb, ca2} {
		if _, err := c.Adopt(first); err != nil {
			t.Fatal(err)
		}
	}
	atA, atB := serve(t, ca), serve(t, cb)
	in, out, ours := watch(t, cb, atA, "ga"), watch(t, ca, atB, "gb"), watch(t, ca2, atA, "ga")
	gone := member(t, "B", b)
	gone.Expelled = &pki.Expulsion{At: now, Why: "a test"}
	if _, err := ca.Adopt(sign(t, founding, charter(2, member(t, "A", a), gone))); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]healthpb.Health_WatchClient{"to its server": in, "of its client": out} {
		if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("the connection %s: %v", name, err)
		}
	}
	heard := make(chan error, 1)
	go func() {
		_, err := ours.Recv()
		heard <- err
	}()
	again := watch(t, ca2, atA, "ga") // and after the other was heard to live for a round trip
	_ = again
	select {
	case err := <-heard:
		t.Errorf("a connection of the own organization ended: %v", err)
	default:
	}
	// Back again, with the same certificates.
	if _, err := ca.Adopt(sign(t, founding, charter(3, member(t, "A", a), member(t, "B", b)))); err != nil {
		t.Fatal(err)
	}
	watch(t, cb, atA, "ga")
}
