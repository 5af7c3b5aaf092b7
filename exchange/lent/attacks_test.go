// SPDX-License-Identifier: Apache-2.0

package lent_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/weir-storage/weir/exchange/capability"
	"github.com/weir-storage/weir/exchange/lent"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/store"
)

// raw is a signed request, which change may spoil after it was signed.
func (o *one) raw(g lent.Granted, method, path, body string, before, change func(*http.Request)) error {
	o.Helper()
	ctx, cancel := context.WithTimeout(o.Context(), 10*time.Second) // guards against a hang only
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "https://"+o.address+path, strings.NewReader(body))
	o.ok(err)
	sum := sha256.Sum256([]byte(body))
	req.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
	if before != nil {
		before(req)
	}
	if g.Access != "" {
		req = signer.SignV4(*req, g.Access, g.Secret, "", "us-east-1")
	}
	if change != nil {
		change(req)
	}
	res, err := o.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if res.StatusCode >= 300 {
		return fmt.Errorf("%s: %s", res.Status, text)
	}
	return err
}

// TestAttacks: who uses a lent store otherwise than he was lent it is refused, which is logged and
// counted, and nothing changes.
func TestAttacks(t *testing.T) {
	r := newRig(t)
	r.agree(ended, "B", 1000, "b-0")
	r.start()
	ctx := t.Context()
	b0, b1, c0 := r.as("B", "b-0", pki.PartGateway), r.as("B", "b-1", pki.PartGateway), r.as("C", "c-0", pki.PartGateway)
	gb, gc, over := b0.granted(deal), c0.granted(other), b0.granted(ended)
	b, c := b0.with(gb, deal), c0.with(gc, other)
	r.ok(put(ctx, b, "b-0/x", 600))
	r.ok(put(ctx, c, "c-0/secret", 100))
	r.change(paper.RequestName(ended), func(p *paper.Paper) { p.Request.Drained = &paper.Moment{At: time.Now().UTC(), By: "b"} })
	r.change(paper.AnswerName(ended), func(p *paper.Paper) { p.Answer.Deleting = &paper.Moment{At: time.Now().UTC(), By: "a"} })
	forged := func(change func(*capability.Capability), g lent.Granted) lent.Granted {
		is, err := capability.Read(g.Access)
		r.ok(err)
		change(&is)
		g.Access, err = is.Access()
		r.ok(err)
		return g
	}
	get := func(s store.Store, name string) error { return s.GetRange(ctx, name, 0, make([]byte, 10)) }
	body := strings.Repeat("x", 10)
	request := func(method, path string, before, change func(*http.Request)) func() error {
		text := body
		if method != http.MethodPut {
			text = ""
		}
		return func() error { return b0.raw(gb, method, path, text, before, change) }
	}
	header := func(k, v string) func(*http.Request) { return func(r *http.Request) { r.Header.Set(k, v) } }
	ask := func(o *one, agreement string) func() error {
		return func() error { return o.ask("/.weir/capability", lent.Asked{Agreement: agreement}, new(lent.Granted)) }
	}
	var captured *http.Request
	r.ok(b0.raw(gb, http.MethodPut, "/"+deal+"/b-0/replayed", body, nil,
		func(r *http.Request) { captured = r.Clone(context.Background()) }))
	replay := func(o *one, change func(*http.Request)) func() error {
		return func() error {
			again := captured.Clone(ctx)
			again.Body = io.NopCloser(strings.NewReader(body))
			change(again)
			res, err := o.http.Do(again)
			if err != nil {
				return err
			}
			defer func() { _ = res.Body.Close() }()
			text, _ := io.ReadAll(res.Body)
			if res.StatusCode >= 300 {
				return fmt.Errorf("%s: %s", res.Status, text)
			}
			return nil
		}
	}
	at := "/" + deal + "/b-0/new"
	for _, x := range []struct {
		name, says string
		try        func() error
	}{
		{"another agreement's object is read", "the capability is for agreement", func() error {
			return get(b0.with(gb, other),
				"c-0/secret")
		}},
		{"another agreement's objects are listed", "the capability is for agreement",
			func() error { return b0.with(gb, other).List(ctx, "", func(store.Info) error { return nil }) }},
		{"another agreement's object is deleted", "the capability is for agreement",
			func() error { return b0.with(gb, other).Delete(ctx, "c-0/secret") }},
		{"an object is put there", "the capability is for agreement", func() error { return put(ctx, b0.with(gb, other), "b-0/y", 1) }},
		{"another's capability, copied", "and the connection of b-0", func() error { return get(b0.with(gc, other), "c-0/secret") }},
		{"that of another gateway of the same guest", "and the connection of b-1", func() error {
			return put(ctx, b1.with(gb, deal),
				"b-0/y", 1)
		}},
		{"an object is put into another gateway's folder", "puts objects into its own folder", func() error {
			return put(ctx, b, "b-1/y",
				1)
		}},
		{"an object is replaced", "never replaced", request(http.MethodPut, "/"+deal+"/b-0/x", nil, nil)},
		{"one byte more than the room", "that gateway b-0 may fill", func() error { return put(ctx, b, "b-0/y", 1000-610+1) }},
		{"a capability that lasts longer", "SignatureDoesNotMatch",
			func() error {
				return get(b0.with(forged(func(c *capability.Capability) { c.Until += 999 }, gb), deal), "b-0/x")
			}},
		{"a capability that ended", "the capability ended at", func() error {
			return get(b0.with(forged(func(c *capability.Capability) { c.Until = time.Now().Unix() - 9 }, gb), deal), "b-0/x")
		}},
		{"a capability of another store", "is of the store at site fra",
			func() error {
				return get(b0.with(forged(func(c *capability.Capability) { c.Store = "fra" }, gb), deal), "b-0/x")
			}},
		{"a capability of an agreement that ended", "is Drained", func() error { return get(b0.with(over, ended), "b-0/x") }},
		{"a capability for an agreement that ended", "is Drained", ask(b0, ended)},
		{"a capability for another's agreement", "has no agreement", ask(b0, other)},
		{"a capability for no agreement", "has no agreement", ask(b0, "6f1c2b6e-0000-4000-8000-00000000000f")},
		{"a capability for a stranger", "has no agreement", ask(r.as("D", "d-0", pki.PartGateway), deal)},
		{"a capability for a person", "gateways use a lent store", ask(r.as("B", "bob", pki.PartPerson), deal)},
		{"keys of an account of S3", "is no capability", func() error {
			return get(b0.with(lent.Granted{Access: "AKIA", Secret: "x"},
				deal), "b-0/x")
		}},
		{"a secret of one's own", "SignatureDoesNotMatch", func() error {
			return get(b0.with(lent.Granted{Access: gb.Access,
				Secret: "x"}, deal), "b-0/x")
		}},
		{"no signature", "it is not signed", func() error {
			return b0.raw(lent.Granted{}, http.MethodGet, "/"+deal+"/b-0/x", "", nil,
				nil)
		}},
		{"a signature in the URL", "it is not signed",
			func() error {
				return b0.raw(lent.Granted{}, http.MethodGet, "/"+deal+"/b-0/x?X-Amz-Signature=1", "", nil, nil)
			}},
		{"a request of before, for another object", "SignatureDoesNotMatch",
			replay(b0, func(r *http.Request) { r.URL.Path = "/" + deal + "/b-0/other" })},
		{"a request of before, with another body and name", "SignatureDoesNotMatch", replay(b0, func(r *http.Request) {
			r.URL.Path += "2"
			r.Body = io.NopCloser(strings.NewReader(strings.Repeat("y", 10)))
		})},
		{"a request of before, by another", "and the connection of c-0", replay(c0, func(*http.Request) {})},
		{"a request of before, again", "never replaced", replay(b0, func(*http.Request) {})},
		{"a request of an hour ago", "RequestTimeTooSkewed", request(http.MethodGet, "/"+deal+"/b-0/x", nil,
			header("X-Amz-Date", time.Now().Add(-time.Hour).UTC().Format("20060102T150405Z")))},
		{"another body than was signed", "SHA256", request(http.MethodPut, at, nil, func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader(strings.Repeat("y", 10)))
		})},
		{"buckets are listed", "buckets are not listed", request(http.MethodGet, "/", nil, nil)},
		{"a bucket is made", "is not offered", request(http.MethodPut, "/"+deal, nil, nil)},
		{"a bucket is deleted", "is not offered", request(http.MethodDelete, "/"+deal, nil, nil)},
		{"many objects are deleted at once", "is not offered", request(http.MethodPost, "/"+deal+"?delete", nil, nil)},
		{"an upload in parts begins", "is not offered", request(http.MethodPost, at+"?uploads", nil, nil)},
		{"a part is uploaded", "is not offered", request(http.MethodPut, at+"?partNumber=1&uploadId=x", nil, nil)},
		{"an object is copied", "header x-amz-copy-source is not offered", request(http.MethodPut, at,
			header("X-Amz-Copy-Source", "/"+other+"/c-0/secret"), nil)},
		{"access is given to all", "is not offered", request(http.MethodPut, "/"+deal+"?acl", nil, nil)},
		{"a policy is set", "is not offered", request(http.MethodPut, "/"+deal+"?policy", nil, nil)},
		{"an account is made", "is not offered", request(http.MethodPatch, "/create-user", nil, nil)},
		{"a name that leads elsewhere", "no name of an object", request(http.MethodGet,
			"/"+deal+"/b-0/%2e%2e/%2e%2e/"+other+"/c-0/secret", nil, nil)},
		{"a body where none belongs", "only what puts an object has a body",
			func() error { return b0.raw(gb, http.MethodDelete, "/"+deal+"/b-0/x", body, nil, nil) }},
		{"a name with many folders", "parts at most", func() error { return put(ctx, b, "b-0/1/2/3/4/5/6", 1) }},
		{"a long name", "bytes and 6 parts at most", func() error { return put(ctx, b, "b-0/"+strings.Repeat("n", 200), 1) }},
		{"a made-up key for another's agreement", "has no agreement", func() error {
			d := r.as("D", "d-0", pki.PartGateway)
			return get(d.with(forged(func(c *capability.Capability) { c.Organization, c.Gateway = "D", "d-0" }, gb), deal), "b-0/x")
		}},
		{"a capability for a gateway of which nobody said so", "says no room for gateway b-9", ask(r.as("B", "b-9", pki.PartGateway),
			deal)},
		{"more was counted than any agreement has", "a counter is", func() error {
			return b0.ask("/.weir/count", lent.Counted{Agreement: deal, Counters: paper.Counters{Puts: 1 << 60}}, new(lent.Met))
		}},
		{"a name that is hidden", "no name of an object", request(http.MethodPut, "/"+deal+"/b-0/.hidden", nil, nil)},
		{"more was counted than can be", "are more than", func() error {
			return b0.ask("/.weir/count", lent.Counted{Agreement: deal, Counters: paper.Counters{ByteHours: 1e15}}, new(lent.Met))
		}},
		{"another's agreement is counted", "has no agreement", func() error {
			return b0.ask("/.weir/count", lent.Counted{Agreement: other}, new(lent.Met))
		}},
		{"a call that is none", "it is no call of this release", func() error {
			return b0.ask("/.weir/count", map[string]string{"agreement": deal, "admin": "yes"}, new(lent.Met))
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			was, mark := r.meter.all(), r.log.length()
			err := x.try()
			if err == nil {
				t.Fatal("it is not refused")
			}
			if r.meter.all() == was {
				t.Errorf("it is not counted: %v", err)
			}
			if told := r.log.since(mark); !strings.Contains(told, "audit=refused") || !strings.Contains(told, x.says) {
				t.Errorf("it is not told as %q: %v", x.says, err)
			}
			if errors.Is(err, store.ErrUnavailable) && !strings.Contains(x.name, "room") {
				t.Errorf("it is to be tried again: %v", err)
			}
		})
	}
	var names []string
	r.ok(r.below.List(ctx, "", func(i store.Info) error { names = append(names, fmt.Sprint(i.Name, " ", i.Size)); return nil }))
	want := []string{"lent/" + deal + "/b-0/replayed 10", "lent/" + deal + "/b-0/x 600", "lent/" + other + "/c-0/secret 100"}
	if fmt.Sprint(names) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", names, want)
	}
	secret := make([]byte, 100)
	r.ok(c.GetRange(ctx, "c-0/secret", 0, secret))
	if !bytes.Equal(secret, bytes.Repeat([]byte("x"), 100)) {
		t.Errorf("%q", secret)
	}
}
