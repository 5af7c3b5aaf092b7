// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// ErrSignature is wrapped by errors about signatures that do not count.
var ErrSignature = errors.New("signature refused")

// recordType is what a signature is for, in its protected header (RFC 7515, section 4.1.9).
const recordType = "weir-record"

// Statement is what a signature of a record says: what is at a key.
type Statement struct {
	Key string `json:"key"`
	// Number counts what was written at the key, for records that are only replaced by who read
	// them.
	Number uint64 `json:"n,omitempty"`
	// Digest is the SHA-256 of what was written.
	Digest []byte `json:"sha256"`
	// At is when it was signed, by the signer's clock, in seconds since 1970.
	At int64 `json:"iat"`
}

// algorithm is with what a key signs.
func algorithm(public crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return jose.ES256, nil
		}
		if k.Curve == elliptic.P384() {
			return jose.ES384, nil
		}
	case ed25519.PublicKey:
		return jose.EdDSA, nil
	case *rsa.PublicKey:
		return jose.PS256, nil
	}
	return "", fmt.Errorf("a key of type %T signs nothing here: use ECDSA P-256", public)
}

// Sign signs a statement with the certificate, which is in the signature (a compact JWS with x5c,
// RFC 7515). It sets the statement's time. Whoever has the certificate can sign, so what one may
// say, the reader must know.
func (c *Credentials) Sign(s Statement) (string, error) {
	s.At = c.clock().Unix()
	fail := func(err error) (string, error) { return "", fmt.Errorf("sign record %s: %w", s.Key, err) }
	text, err := json.Marshal(s)
	if err != nil {
		return fail(err)
	}
	cert := c.current().cert
	if cert.Leaf == nil {
		return fail(errors.New("these credentials have no certificate: they only check what others signed"))
	}
	alg, err := algorithm(cert.Leaf.PublicKey)
	if err != nil {
		return fail(err)
	}
	var chain []string
	for _, der := range cert.Certificate {
		chain = append(chain, base64.StdEncoding.EncodeToString(der))
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: cert.PrivateKey},
		new(jose.SignerOptions).WithType(recordType).WithHeader("x5c", chain))
	if err != nil {
		return fail(err)
	}
	signed, err := signer.Sign(text)
	if err != nil {
		return fail(err)
	}
	out, err := signed.CompactSerialize()
	if err != nil {
		return fail(err)
	}
	return out, nil
}

// chained is a chain that was looked at: it counts for signatures of that time.
type chained struct {
	id          Identity
	first, last time.Time
	leaf        *x509.Certificate
}

// verified is a signature that was looked at.
type verified struct {
	says Statement
	by   Identity
}

// chains remembers chains, of which most records have one of few, and signatures, which are looked
// at more than once. What it knows is forgotten when authorities change.
type chains struct {
	mu      sync.Mutex
	set     *set
	charter *charter
	known   map[[sha256.Size]byte]chained
	signed  map[[sha256.Size]byte]verified // by signature
	headers map[string]header              // protected headers of signatures that were good
}

// header is what the protected header of a signature says.
type header struct {
	x5c []string
	alg jose.SignatureAlgorithm
}

// mostChains is how many chains, and how many signatures, are remembered: more than a large
// federation has writers.
const mostChains = 1 << 14

// mostRemembered is how long a signature may be, in bytes, of which anything is remembered: who
// signs chooses how long it is.
const mostRemembered = 16 << 10

// mostHeaders is how many protected headers are remembered.
const mostHeaders = 1 << 11

// fresh forgets what does not hold any more. The caller holds mu.
func (m *chains) fresh(set *set, is *charter) {
	if m.set != set || m.charter != is {
		m.set, m.charter, m.known, m.signed, m.headers = set, is, nil, nil, nil
	}
	if len(m.known) >= mostChains || m.known == nil {
		m.known = map[[sha256.Size]byte]chained{}
	}
	if len(m.signed) >= mostChains || m.signed == nil {
		m.signed = map[[sha256.Size]byte]verified{}
	}
	if len(m.headers) >= mostHeaders || m.headers == nil {
		m.headers = map[string]header{}
	}
}

// Verified reads a signature of a record: what it states, and who signed. ErrSignature: it does not
// count, since its certificate is none of the federation, or was none when it was signed. A
// certificate that has ended since counts, as do those of an authority that was dropped since
// (Former), and of an organization that was expelled since.
func (c *Credentials) Verified(signature string) (Statement, Identity, error) {
	set, is := c.current(), c.charter.Load()
	print := sha256.Sum256([]byte(signature))
	m := &c.chains
	m.mu.Lock()
	m.fresh(set, is)
	seen, ok := m.signed[print]
	m.mu.Unlock()
	if ok {
		return seen.says, seen.by, nil
	}
	says, by, err := c.verify(signature)
	if err != nil {
		return says, by, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.set == set && m.charter == is && len(signature) <= mostRemembered {
		m.signed[print] = verified{says, by}
	}
	return says, by, nil
}

func (c *Credentials) verify(signature string) (Statement, Identity, error) {
	fail := func(format string, a ...any) (Statement, Identity, error) {
		return Statement{}, Identity{}, fmt.Errorf("%w: %s", ErrSignature, fmt.Sprintf(format, a...))
	}
	protected, rest, ok := strings.Cut(signature, ".")
	if !ok {
		return fail("it is no signature")
	}
	h, known := c.header(protected)
	if !known {
		raw, err := base64.RawURLEncoding.DecodeString(protected)
		if err != nil {
			return fail("it is no signature")
		}
		var says struct {
			X5c []string `json:"x5c"`
		}
		if err := json.Unmarshal(raw, &says); err != nil || len(says.X5c) == 0 || len(says.X5c) > 8 {
			return fail("it has no certificate")
		}
		h.x5c = says.X5c
	}
	payload, mac, _ := strings.Cut(rest, ".")
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return fail("it is no signature")
	}
	var s Statement
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields() // of a later release, whose meaning is not known
	if err := d.Decode(&s); err != nil {
		return fail("%v: upgrade this program", err)
	}
	who, err := c.chain(h.x5c, time.Unix(s.At, 0))
	if err != nil {
		return fail("%v", err)
	}
	alg, err := algorithm(who.leaf.PublicKey)
	if err != nil {
		return fail("%v", err)
	}
	if known && h.alg == alg && alg == jose.ES256 && es256(who.leaf.PublicKey, signature[:len(protected)+1+len(payload)], mac) {
		return s, who.id, nil
	}
	parsed, err := jose.ParseSignedCompact(signature, []jose.SignatureAlgorithm{alg})
	if err != nil {
		return fail("it is no signature: %v", err)
	}
	if typ := parsed.Signatures[0].Protected.ExtraHeaders[jose.HeaderType]; typ != recordType {
		return fail("it is for %q, and not for %q", typ, recordType)
	}
	signed, err := parsed.Verify(who.leaf.PublicKey)
	if err != nil || !bytes.Equal(signed, text) {
		return fail("it was not made with the key of its certificate, %s", who.id)
	}
	m := &c.chains
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fresh(c.current(), c.charter.Load()); len(signature) <= mostRemembered {
		m.headers[strings.Clone(protected)] = header{h.x5c, alg}
	}
	return s, who.id, nil
}

// header returns what a protected header says that a good signature had before. All that one writer
// signs with one certificate has the same, and reading it takes as long as the signature itself: it
// has certificates.
func (c *Credentials) header(protected string) (header, bool) {
	m := &c.chains
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fresh(c.current(), c.charter.Load())
	h, ok := m.headers[protected]
	return h, ok
}

// es256 checks the signature of a text (RFC 7518, section 3.4).
func es256(public crypto.PublicKey, text, signature string) bool {
	key, ok := public.(*ecdsa.PublicKey)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(signature)
	if !ok || err != nil || len(raw) != 64 {
		return false
	}
	sum := sha256.Sum256([]byte(text))
	return ecdsa.Verify(key, sum[:], new(big.Int).SetBytes(raw[:32]), new(big.Int).SetBytes(raw[32:]))
}

// chain checks a chain of certificates (base64 of DER, leaf first), for what was signed at a time.
func (c *Credentials) chain(encoded []string, at time.Time) (chained, error) {
	set, is := c.current(), c.charter.Load()
	print := sha256.Sum256([]byte(strings.Join(encoded, "\n")))
	m := &c.chains
	m.mu.Lock()
	m.fresh(set, is)
	known, ok := m.known[print]
	m.mu.Unlock()
	if ok && !at.Before(known.first) && !at.After(known.last) {
		return known, nil
	}
	var all []*x509.Certificate
	for _, text := range encoded {
		der, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return chained{}, err
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return chained{}, err
		}
		all = append(all, cert)
	}
	found, err := set.vouched(all, at, c.self, is)
	if err != nil {
		return chained{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.set == set && m.charter == is {
		m.known[print] = found
	}
	return found, nil
}

// vouched checks a chain as of a time, with those authorities too that vouched for it then.
func (s *set) vouched(chain []*x509.Certificate, at time.Time, self Identity, c *charter) (chained, error) {
	id, err := identify(chain[0])
	if err != nil {
		return chained{}, err
	}
	if id.Federation != self.Federation {
		return chained{}, fmt.Errorf("%v is of another federation than %s", id, self.Federation)
	}
	between := x509.NewCertPool()
	for _, other := range chain[1:] {
		between.AddCert(other)
	}
	out := chained{id: id, leaf: chain[0]}
	try := func(pool *x509.CertPool, until time.Time) error {
		if !until.IsZero() && at.After(until.Add(skew)) {
			return fmt.Errorf("its authority did not vouch for %s any more at %s", id, at.UTC().Format(time.RFC3339))
		}
		paths, err := chain[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: at,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		if err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
		}
		out.first, out.last = chain[0].NotBefore, chain[0].NotAfter
		for _, x := range paths[0][1:] {
			if x.NotBefore.After(out.first) {
				out.first = x.NotBefore
			}
			if x.NotAfter.Before(out.last) {
				out.last = x.NotAfter
			}
		}
		if !until.IsZero() && until.Before(out.last) {
			out.last = until
		}
		return nil
	}
	pools, err := s.roots.of(id, self, c)
	for _, pool := range pools {
		if err = try(pool, time.Time{}); err == nil {
			return out, nil
		}
	}
	if c != nil {
		all := c.former[id.Organization]
		if o := c.Find(id.Organization); federal(id.Part) {
			if all = nil; o != nil && o.Expelled != nil {
				all = []former{{s.roots.founding, o.Expelled.At}}
			}
		}
		for _, f := range all {
			if try(f.pool, f.until) == nil {
				return out, nil
			}
		}
	}
	if err == nil {
		err = fmt.Errorf("nobody vouches for %s", id)
	}
	return chained{}, err
}

// Now is the time by the clock of the credentials.
func (c *Credentials) Now() time.Time { return c.clock() }
