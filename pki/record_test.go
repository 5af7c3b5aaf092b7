// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/weir-storage/weir/pki"
)

// Who reads a record knows who signed it, also when the certificate has ended since, its authority
// was dropped or its organization expelled; and nobody signs after that.
func TestRecordsAreSigned(t *testing.T) {
	founding := authority(t, "surf")
	a, b := ofOrganization(t, "A"), ofOrganization(t, "B")
	who := func(org string, part pki.Part) pki.Identity {
		return pki.Identity{Federation: "surf", Organization: org, Site: "s", Gateway: "x", Part: part}
	}
	lies, err := pki.Forge(b, who("A", pki.PartGateway), now)
	if err != nil {
		t.Fatal(err)
	}
	in := charter(1, member(t, "A", a), member(t, "B", b))
	dropped := charter(2, member(t, "A", ofOrganization(t, "A")), member(t, "B", b))
	former := charter(2, member(t, "A", ofOrganization(t, "A")), member(t, "B", b))
	former.Organizations[0].Former = []pki.Former{{Authority: string(root(t, a)), Until: now.Add(time.Minute)}}
	expelled := charter(2, member(t, "A", a), member(t, "B", b))
	expelled.Organizations[0].Expelled = &pki.Expulsion{At: now.Add(time.Minute), Why: "a test"}
	gateway := issue(t, a, who("A", pki.PartGateway), now, time.Hour)
	admin := issue(t, founding, who("A", pki.PartAdministrator), now, time.Hour)
	for _, c := range []struct {
		name    string
		cert    pki.Pair
		after   time.Duration // when it is signed
		charter *pki.Charter
		ok      bool
	}{
		{"by who is of the federation", gateway, 0, &in, true},
		{"by an organization's authority that no charter has", gateway, 0, nil, false},
		{"without a charter", issue(t, founding, who("A", pki.PartPerson), now, time.Hour), 0, nil, true},
		{"in another organization's name", lies, 0, &in, false},
		{"by the founding authority in an organization's name", issue(t, founding, who("A", pki.PartGateway), now, time.Hour), 0, &in,
			false},
		{"by an administrator", admin, 0, &in, true},
		{"after the certificate's end", gateway, 2 * time.Hour, &in, false},
		{"before the certificate", gateway, -time.Hour, &in, false},
		{"by an authority that was dropped", gateway, 0, &dropped, false},
		{"by one that vouched then", gateway, 0, &former, true},
		{"by one that vouched no more", gateway, 20 * time.Minute, &former, false},
		{"before it was expelled", gateway, 0, &expelled, true},
		{"after it was expelled", gateway, 20 * time.Minute, &expelled, false},
		{"by an administrator before he was expelled", admin, 0, &expelled, true},
		{"by an administrator after he was expelled", admin, 20 * time.Minute, &expelled, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := now
			writer, err := pki.LoadAnyway(c.cert, root(t, founding), func() time.Time { return at })
			if err != nil {
				t.Fatal(err)
			}
			at = now.Add(c.after)
			s := pki.Statement{Key: "volume/v1", Number: 7, Digest: []byte("d")}
			signature, err := writer.Sign(s)
			if err != nil {
				t.Fatal(err)
			}
			reader := credentialsOf(t, founding, root(t, founding), who("R", pki.PartGateway))
			if c.charter != nil {
				if _, err := reader.Adopt(sign(t, founding, *c.charter)); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the second time, the chain is known
				got, by, err := reader.Verified(signature)
				switch {
				case c.ok && (err != nil || got.Key != s.Key || got.Number != 7 || got.At != at.Unix() || by.Organization != "A"):
					t.Errorf("%+v by %v: %v", got, by, err)
				case !c.ok && !errors.Is(err, pki.ErrSignature):
					t.Errorf("it counts, by %v: %v", by, err)
				}
			}
		})
	}
}

// What was changed after it was signed, or signed for something else, does not count.
func TestSignatureIsRefused(t *testing.T) {
	founding := authority(t, "surf")
	id := pki.Identity{Federation: "surf", Organization: "A", Site: "s", Gateway: "x", Part: pki.PartPerson}
	mine, other := issue(t, founding, id, now, time.Hour), issue(t, founding, id, now, time.Hour)
	load := func(p pki.Pair) *pki.Credentials {
		t.Helper()
		c, err := pki.Load(root(t, founding), p, clock)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	writer := load(mine)
	signature, err := writer.Sign(pki.Statement{Key: "volume/v1", Digest: []byte("d")})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := load(other).Sign(pki.Statement{Key: "volume/v1", Digest: []byte("d")})
	if err != nil {
		t.Fatal(err)
	}
	part := strings.Split(signature, ".")
	header := func(change func(map[string]any)) string {
		t.Helper()
		raw, err := base64.RawURLEncoding.DecodeString(part[0])
		if err != nil {
			t.Fatal(err)
		}
		h := map[string]any{}
		if err := json.Unmarshal(raw, &h); err != nil {
			t.Fatal(err)
		}
		change(h)
		raw, err = json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	text := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	key := pki.KeyOf(t, mine)
	says := func(key string, at time.Time, more string) string {
		return fmt.Sprintf(`{"key":%q,"sha256":"ZA==","iat":%d%s}`, key, at.Unix(), more)
	}
	as := func(typ string) string {
		t.Helper()
		var chain any
		header(func(h map[string]any) { chain = h["x5c"] })
		s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key},
			new(jose.SignerOptions).WithType(jose.ContentType(typ)).WithHeader("x5c", chain))
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Sign([]byte(says("volume/v1", now, "")))
		if err != nil {
			t.Fatal(err)
		}
		compact, err := out.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return compact
	}
	reader := load(other)
	second, err := writer.Sign(pki.Statement{Key: "volume/v2", Digest: []byte("d")})
	if err != nil {
		t.Fatal(err)
	}
	// After these, a header that comes again is not read again.
	for _, s := range []string{signature, second, theirs, as("weir-record")} {
		if _, _, err := reader.Verified(s); err != nil {
			t.Fatal(err)
		}
	}
	for name, s := range map[string]string{
		"nothing":                    "",
		"no signature":               "abc",
		"another key":                part[0] + "." + text(says("volume/v2", now, "")) + "." + part[2],
		"another time":               part[0] + "." + text(says("volume/v1", now.Add(time.Second), "")) + "." + part[2],
		"a field of a later release": part[0] + "." + text(says("volume/v1", now, `,"unless":"x"`)) + "." + part[2],
		"another's certificate":      strings.Split(theirs, ".")[0] + "." + part[1] + "." + part[2],
		"a part more":                signature + ".x",
		"no end":                     part[0] + "." + part[1],
		"an empty end":               part[0] + "." + part[1] + ".",
		"a short end":                part[0] + "." + part[1] + "." + part[2][:80],
		"the end of another":         part[0] + "." + part[1] + "." + strings.Split(second, ".")[2],
		"no certificate":             header(func(h map[string]any) { delete(h, "x5c") }) + "." + part[1] + "." + part[2],
		"no algorithm":               header(func(h map[string]any) { h["alg"] = "none" }) + "." + part[1] + ".",
		"a secret's algorithm":       header(func(h map[string]any) { h["alg"] = "HS256" }) + "." + part[1] + "." + part[2],
		"for a charter":              as("weir-charter"),
		"for nothing":                as(""),
	} {
		if got, by, err := reader.Verified(s); !errors.Is(err, pki.ErrSignature) {
			t.Errorf("%s: it counts as %+v by %v (%v)", name, got, by, err)
		}
	}
}

// Who has the authorities only can check what others signed, and sign nothing.
func TestReader(t *testing.T) {
	founding, a := authority(t, "surf"), ofOrganization(t, "A")
	who := pki.Identity{Federation: "surf", Organization: "A", Site: "s", Gateway: "x", Part: pki.PartPerson}
	writer, err := pki.LoadAnyway(issue(t, a, who, now, time.Hour), root(t, founding), clock)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := writer.Sign(pki.Statement{Key: "paper/x", Digest: []byte("d")})
	if err != nil {
		t.Fatal(err)
	}
	r, err := pki.Reader(root(t, founding), "", func() time.Time { return now.Add(1000 * time.Hour) })
	if err != nil || r.Identity() != (pki.Identity{Federation: "surf"}) {
		t.Fatal(r, err)
	}
	if _, _, err := r.Verified(signature); !errors.Is(err, pki.ErrSignature) {
		t.Errorf("without a charter: %v", err)
	}
	if _, err := r.Adopt(sign(t, founding, charter(1, member(t, "A", a)))); err != nil {
		t.Fatal(err)
	}
	if _, by, err := r.Verified(signature); err != nil || by != who {
		t.Errorf("with the charter: %v: %v", by, err)
	}
	if _, err := r.Sign(pki.Statement{Key: "paper/x"}); err == nil {
		t.Error("nobody signed")
	}
	for name, c := range map[string]struct {
		ca         []byte
		federation string
	}{
		"nothing":                     {nil, ""},
		"an organization's authority": {root(t, a), "surf"},
		"another federation":          {root(t, founding), "other"},
		"two federations":             {append(root(t, founding), root(t, authority(t, "other"))...), ""},
		"a key":                       {[]byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"), ""},
	} {
		if _, err := pki.Reader(c.ca, c.federation, clock); !errors.Is(err, pki.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
