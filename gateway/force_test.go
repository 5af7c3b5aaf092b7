// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/pki"
)

// unforced checks that a gateway takes a volume over by force by the word of a person of its owner
// only, who said exactly that.
func (c *cluster) unforced(t *testing.T, site, id string) {
	t.Helper()
	is := c.takeover(site, id)
	with := func(change func(*signed.Takeover)) string { said := is; change(&said); return c.word("a", said) }
	gateway, err := signed.New(c.credentials(pki.PartGateway, "a", "ga"), nil, nil).Say(is)
	if err != nil {
		t.Fatal(err)
	}
	for what, x := range map[string]struct{ word, why string }{
		"without a word":                      {"", "there is no person's word"},
		"with what is no word":                {"yes", "signature refused"},
		"by a person of another organization": {c.word(site, is), "org-a"},
		"by a gateway":                        {gateway, "a person of that says it"},
		"by a word about another gateway":     {with(func(x *signed.Takeover) { x.Gateway = "gc" }), "of gateway gc"},
		"by a word about another volume":      {with(func(x *signed.Takeover) { x.Volume = "other" }), "ask again"},
		"by a word of before":                 {with(func(x *signed.Takeover) { x.Epoch-- }), "look again"},
		"by a word about another record":      {with(func(x *signed.Takeover) { x.Change++ }), "look again"},
	} {
		if err := c.ask(t, site, id, true, x.word); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), x.why) {
			t.Errorf("a takeover by force, %s: %v", what, err)
		}
	}
	if now := c.takeover(site, id); now != is {
		t.Errorf("the record is %+v, and was %+v", now, is)
	}
}

// failover asks a site's gateway to become home, with the word of a person of its owner.
func (c *cluster) failover(t *testing.T, site, id string, acceptLoss bool) error {
	t.Helper()
	word := ""
	if acceptLoss {
		word = c.word("a", c.takeover(site, id))
	}
	return c.ask(t, site, id, acceptLoss, word)
}

func (c *cluster) ask(t *testing.T, site, id string, acceptLoss bool, word string) error {
	t.Helper()
	client, err := c.at(site).peers.Forward("g" + site)
	if err != nil {
		return err
	}
	_, err = client.Failover(within(t, hang), &forwardpb.FailoverRequest{Volume: id, To: "g" + site, AcceptLoss: acceptLoss, Word: word})
	return err
}

// takeover is one by force of a site's gateway, in place of what the registry says now.
func (c *cluster) takeover(site, id string) signed.Takeover {
	c.t.Helper()
	ctl, _, err := c.reg.Client(nil).GetControl(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	return signed.Takeover{Volume: id, Gateway: "g" + site, Epoch: ctl.Epoch, Change: ctl.Change}
}

// word is that of a person of a site's organization.
func (c *cluster) word(site string, is signed.Takeover) string {
	c.t.Helper()
	word, err := signed.New(c.credentials(pki.PartPerson, site, "p"), nil, nil).Say(is)
	if err != nil {
		c.t.Fatal(err)
	}
	return word
}

// credentials are those of a part at a site, whose organization is org-SITE.
func (c *cluster) credentials(part pki.Part, site, name string, hosts ...string) *pki.Credentials {
	c.t.Helper()
	return c.credentialsOf(pki.Identity{Federation: "test", Organization: cmp.Or(c.of, "org-"+site), Site: site, Gateway: name,
		Part: part}, hosts...)
}

// credentialsOf are of a new certificate of an identity.
func (c *cluster) credentialsOf(id pki.Identity, hosts ...string) *pki.Credentials {
	c.t.Helper()
	pair, err := c.ca.Issue(id, hosts, time.Now(), time.Hour)
	if err != nil {
		c.t.Fatal(err)
	}
	root, err := c.ca.Pair()
	if err != nil {
		c.t.Fatal(err)
	}
	creds, err := pki.Load(root.Cert, pair, time.Now)
	if err != nil {
		c.t.Fatal(err)
	}
	return creds
}
