// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/pki"
)

// A charter that comes before the authority that signed it is taken when that has come.
func TestCharterComesFirst(t *testing.T) {
	w, log := newWall(), new(record)
	old, next := authority(t, "surf"), authority(t, "surf")
	files := newSecret(t)
	pair := issue(t, old, id("surf", "A", "g"), now, time.Hour)
	files.put(root(t, old), pair)
	c := files.load(w.now, log)
	if _, err := c.Adopt(sign(t, next, charter(1, member(t, "A", old)))); !errors.Is(err, pki.ErrCharter) {
		t.Fatal(err)
	}
	files.put(slices.Concat(root(t, old), root(t, next)), pair)
	w.advance(3 * time.Second)
	c.Expires() // looks at the files, as a handshake does
	for begun := time.Now(); !c.Expelled("B"); time.Sleep(time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			t.Fatal("it is not taken")
		}
	}
}

// Once there is a charter, only members of the registry are taken for such, whatever address an
// organization's authority writes into a certificate.
func TestRegistryIsTold(t *testing.T) {
	founding, a := authority(t, "surf"), ofOrganization(t, "A")
	trust := slices.Concat(root(t, a), root(t, founding))
	named := func(by *pki.Authority, part pki.Part) *pki.Credentials {
		t.Helper()
		p, err := by.Issue(pki.Identity{Federation: "surf", Organization: "A", Site: "ams", Gateway: "x", Part: part},
			[]string{"registry.example.org"}, now, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		c, err := pki.Load(trust, p, clock)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	client := named(a, pki.PartGateway)
	ask := func(server *pki.Credentials) error {
		t.Helper()
		if _, err := server.Adopt(sign(t, founding, charter(1, member(t, "A", a)))); err != nil && !errors.Is(err, pki.ErrCharter) {
			t.Fatal(err)
		}
		_, _, err := connect(t, server.Server(pki.Expect{}),
			client.Client(pki.Expect{Part: pki.PartRegistry, IfChartered: true}, "registry.example.org"))
		return err
	}
	for _, part := range []pki.Part{pki.PartUnknown, pki.PartGateway, pki.PartRegistry} {
		by := a
		if part == pki.PartRegistry {
			by = founding
		}
		if err := ask(named(by, part)); err != nil {
			t.Errorf("part %q, without a charter: %v", part, err)
		}
	}
	if _, err := client.Adopt(sign(t, founding, charter(1, member(t, "A", a)))); err != nil {
		t.Fatal(err)
	}
	for part, by := range map[pki.Part]*pki.Authority{pki.PartUnknown: a, pki.PartGateway: a, pki.PartPerson: a} {
		if err := ask(named(by, part)); err == nil || !strings.Contains(err.Error(), `expected is "registry"`) {
			t.Errorf("part %q: %v", part, err)
		}
	}
	if err := ask(named(founding, pki.PartRegistry)); err != nil {
		t.Error(err)
	}
}

// An authority that was dropped counts nowhere, also not in its own organization, whose file may
// still have it; and connections end when a file no longer has the authority of their peers.
func TestDroppedAtHome(t *testing.T) {
	w, log := newWall(), new(record)
	founding, a, next := authority(t, "surf"), ofOrganization(t, "A"), ofOrganization(t, "A")
	both := slices.Concat(root(t, next), root(t, a), root(t, founding))
	files := newSecret(t)
	files.put(both, issue(t, next, id("surf", "A", "ga"), now, time.Hour))
	server := files.load(w.now, log)
	thief := credentialsOf(t, a, both, id("surf", "A", "x"))
	accepted := func() bool {
		_, err, _ := connect(t, server.Server(pki.Expect{}), thief.ClientByIdentity(pki.Expect{Site: "ams"}))
		return err == nil
	}
	if !accepted() {
		t.Fatal("without a charter both authorities count")
	}
	if _, err := server.Adopt(sign(t, founding, charter(1, member(t, "A", next)))); err != nil {
		t.Fatal(err)
	}
	if accepted() {
		t.Error("what the dropped authority issued is accepted at home")
	}

	// Without a charter it is the file that counts.
	files = newSecret(t)
	files.put(both, issue(t, next, id("surf", "A", "ga"), now, time.Hour))
	server = files.load(w.now, log)
	stream := watch(t, thief, serve(t, server), "ga")
	files.put(slices.Concat(root(t, next), root(t, founding)), issue(t, next, id("surf", "A", "ga"), now, time.Hour))
	w.advance(3 * time.Second)
	if accepted() { // it looks at its files now
		t.Error("the authority that was taken out of the file still counts")
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the open connection: %v", err)
	}
}

// A file of authorities that is not clear about what they are for is refused.
func TestUnclearAuthorities(t *testing.T) {
	founding := authority(t, "surf")
	other := authority(t, "sara")
	p := issue(t, founding, id("surf", "A", "g"), now, time.Hour)
	if _, err := pki.Load(slices.Concat(root(t, founding), root(t, other)), p, clock); !errors.Is(err, pki.ErrInvalid) ||
		!strings.Contains(err.Error(), "federation sara") {
		t.Errorf("with another federation's: %v", err)
	}
	for _, uris := range [][]string{{"weir://surf", "weir://surf/A"}, {"weir:surf"}, {"weir:///A"}, {"weir://surf/A/b"}, {"weir://surf/"}} {
		text, err := pki.AuthorityWith(now, uris...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pki.Load(slices.Concat(root(t, founding), text), p, clock); !errors.Is(err, pki.ErrInvalid) {
			t.Errorf("%q: %v", uris, err)
		}
		if err := pki.CheckFounding(text, "surf"); !errors.Is(err, pki.ErrInvalid) {
			t.Errorf("%q as a founding one: %v", uris, err)
		}
	}
}
