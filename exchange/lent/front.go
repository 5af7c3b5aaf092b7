// SPDX-License-Identifier: Apache-2.0

package lent

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/exchange/capability"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/store"
)

// Bounds of an object's name, with its gateway's folder: folders are not counted.
const (
	mostName  = 200
	mostParts = 6
)

// operation is what somebody does with a bucket.
type operation string

const (
	opPut    operation = "put"
	opGet    operation = "get"
	opList   operation = "list"
	opDelete operation = "delete"
)

// may returns why a capability does not allow an operation now; "": it does (lent-1, lent-2).
func (s *Store) may(c capability.Capability, bucket, name string, op operation) (*deal, string) {
	d := s.deals.of(c.Agreement, c.Gateway)
	if d == nil || d.request.Guest != c.Organization { // strangers learn nothing of it
		return nil, s.unknown(c.Agreement, c.Organization)
	}
	stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	switch {
	case c.Store != s.cfg.Site:
		return d, fmt.Sprintf("the capability is of the store at site %s", c.Store)
	case c.Agreement != bucket:
		return d, fmt.Sprintf("the capability is for agreement %s", c.Agreement)
	case !c.Ends().After(d.now):
		return d, fmt.Sprintf("the capability ended at %s, and by this store's clock it is %s: ask for another, or set the clock",
			stamp(c.Ends()), stamp(d.now))
	case op == opPut && !strings.HasPrefix(name, c.Folder()):
		return d, fmt.Sprintf("gateway %s puts objects into its own folder %s", c.Gateway, c.Folder())
	case op == opPut && !d.life.Writes(d.now):
		return d, fmt.Sprintf("the agreement is %s (%s), and by this store's clock it is %s", d.life.Phase, d.life.Why, stamp(d.now))
	case !d.life.Reads():
		return d, fmt.Sprintf("the agreement is %s: %s", d.life.Phase, d.life.Why)
	case op != opList && store.CheckName(key(bucket, name)) != nil:
		return d, "this is no name of an object"
	case op == opPut && (len(name) > mostName || strings.Count(name, "/") >= mostParts):
		return d, fmt.Sprintf("a name has %d bytes and %d parts at most", mostName, mostParts)
	}
	return d, ""
}

// unknown is said of agreements that there are not, and of those of others.
func (s *Store) unknown(agreement, organization string) string {
	return fmt.Sprintf("this store, of %s at site %s, has no agreement %s with %q", s.cfg.Organization, s.cfg.Site, agreement, organization)
}

// request is what an HTTP request asks for, as far as it is let in.
type request struct {
	access, bucket, name string
	op                   operation
}

// listed are parameters of lists.
var listed = []string{"list-type", "prefix", "continuation-token", "start-after", "max-keys", "encoding-type", "fetch-owner", "delimiter"}

// read reads an HTTP request; an error says why it is none that is offered.
func read(r *http.Request) (q request, err error) {
	const scheme = "AWS4-HMAC-SHA256 Credential="
	auth := r.Header.Get("Authorization")
	if !strings.HasPrefix(auth, scheme) {
		return q, errors.New("it is not signed: use AWS Signature Version 4, in the header Authorization")
	}
	q.access, _, _ = strings.Cut(auth[len(scheme):], "/")
	for h := range r.Header {
		h := strings.ToLower(h)
		if strings.HasPrefix(h, "x-amz-") && !slices.Contains([]string{"x-amz-date", "x-amz-content-sha256", "x-amz-decoded-content-length",
			"x-amz-trailer", "x-amz-sdk-checksum-algorithm"}, h) && !strings.HasPrefix(h, "x-amz-checksum-") {
			return q, fmt.Errorf("header %s is not offered", h)
		}
	}
	path, err := url.PathUnescape(strings.TrimPrefix(r.URL.EscapedPath(), "/"))
	if err != nil {
		return q, err
	}
	q.bucket, q.name, _ = strings.Cut(path, "/")
	params := r.URL.Query()
	switch {
	case q.bucket == "":
		return q, errors.New("buckets are not listed: name that of an agreement")
	case q.name == "" && r.Method == http.MethodHead && len(params) == 0:
		q.op = opList
	case q.name == "" && r.Method == http.MethodGet && params.Get("list-type") == "2":
		q.op = opList
		for p := range params {
			if !slices.Contains(listed, p) {
				return q, fmt.Errorf("parameter %s is not offered", p)
			}
		}
	case q.name == "" || len(params) > 0:
		return q, fmt.Errorf("%s of this is not offered: a lent store puts, gets, heads, lists and deletes objects", r.Method)
	case r.Method == http.MethodPut:
		q.op = opPut
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		q.op = opGet
	case r.Method == http.MethodDelete:
		q.op = opDelete
	default:
		return q, fmt.Errorf("%s is not offered: a lent store puts, gets, heads, lists and deletes objects", r.Method)
	}
	switch {
	case q.op != opPut && r.ContentLength != 0: // the library would read all of it
		return q, errors.New("only what puts an object has a body")
	case q.op == opPut && (r.ContentLength < 0 || r.ContentLength > mostObject+mostFraming):
		return q, fmt.Errorf("an object of %d bytes: send Content-Length, %d at most", r.ContentLength, mostObject)
	}
	return q, nil
}

// mostFraming is what signatures of parts add to a body, in bytes.
const mostFraming = 1 << 20

// opOf is what a method does, of a few that are counted.
func opOf(method string) string {
	switch method {
	case http.MethodPut, http.MethodGet, http.MethodHead, http.MethodDelete, http.MethodPost:
		return strings.ToLower(method)
	}
	return "other"
}

// refuse tells why a request is refused, as S3 does.
func (s *Store) refuse(w http.ResponseWriter, r *http.Request, peer pki.Identity, agreement, why string) {
	s.refused(opOf(r.Method), peer.Organization, peer.Gateway, agreement, why)
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("Connection", "close") // its body is not read
	w.WriteHeader(http.StatusForbidden)
	_ = xml.NewEncoder(w).Encode(struct {
		XMLName       xml.Name `xml:"Error"`
		Code, Message string
	}{Code: "AccessDenied", Message: why})
}

// serve answers a request. Connections are of mutual TLS.
func (s *Store) serve(w http.ResponseWriter, r *http.Request) {
	peer := pki.Identity{}
	err := errors.New("there is no certificate")
	if r.TLS != nil {
		if err = s.tls.VerifyConnection(*r.TLS); err == nil { // who was expelled since is refused
			peer, err = pki.PeerIdentity(*r.TLS)
		}
	}
	if err != nil || peer.Part != pki.PartGateway {
		s.refuse(w, r, peer, "", "gateways use a lent store, with their certificates")
		return
	}
	switch r.URL.Path {
	case CapabilityPath:
		answer(s, w, r, peer, s.grant)
		return
	case CountPath:
		answer(s, w, r, peer, s.count)
		return
	}
	q, err := read(r)
	if err != nil {
		s.refuse(w, r, peer, q.bucket, err.Error())
		return
	}
	c, err := capability.Read(q.access)
	if err != nil {
		s.refuse(w, r, peer, q.bucket, err.Error())
		return
	}
	if c.Organization != peer.Organization || c.Gateway != peer.Gateway {
		s.refuse(w, r, peer, q.bucket, fmt.Sprintf("the capability is of gateway %s of %q, and the connection of %s of %q", c.Gateway,
			c.Organization, peer.Gateway, peer.Organization))
		return
	}
	if _, why := s.may(c, q.bucket, q.name, q.op); why != "" {
		s.refuse(w, r, peer, q.bucket, why)
		return
	}
	if !s.begin(peer.Organization) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests of this organization at once: try again", http.StatusServiceUnavailable)
		return
	}
	defer s.end(peer.Organization)
	conn := http.NewResponseController(w)
	_ = conn.SetWriteDeadline(time.Now().Add(answerTime))
	r.Body = &hasty{r.Body, conn}
	s.behind.ServeHTTP(w, r)
}

// How many requests of one organization are served at once; how long an answer may take; how long
// nothing of a body may come.
const (
	mostAtOnce = 64
	answerTime = 10 * time.Minute
	stallTime  = 30 * time.Second
)

// begin takes a place among the requests that are served.
func (s *Store) begin(organization string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving[organization] >= mostAtOnce {
		return false
	}
	s.serving[organization]++
	return true
}

func (s *Store) end(organization string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving[organization]--; s.serving[organization] == 0 {
		delete(s.serving, organization)
	}
}

// hasty is a body of which something has to come now and then.
type hasty struct {
	io.ReadCloser
	c *http.ResponseController
}

// Read implements io.Reader.
func (h *hasty) Read(p []byte) (int, error) {
	_ = h.c.SetReadDeadline(time.Now().Add(stallTime))
	n, err := h.ReadCloser.Read(p)
	if err != nil {
		_ = h.c.SetReadDeadline(time.Time{})
	}
	return n, err
}

// Paths of the store's own service. No bucket is named so.
const (
	CapabilityPath = "/.weir/capability"
	CountPath      = "/.weir/count"
)

// Asked asks for a capability.
type Asked struct {
	Agreement string `json:"agreement"`
}

// Granted is a capability, and how the agreement is.
type Granted struct {
	Access string    `json:"access"`
	Secret string    `json:"secret"`
	Until  time.Time `json:"until"`
	// Now is the store's time.
	Now   time.Time   `json:"now"`
	Phase paper.Phase `json:"phase"`
	Why   string      `json:"why"`
}

// Counted is what a gateway counted.
type Counted struct {
	Agreement string `json:"agreement"`
	paper.Counters
}

// Met is what the store counted of a gateway.
type Met struct {
	paper.Counters
	Now time.Time `json:"now"`
}

// mostAsked bounds a call of the store's own service, in bytes.
const mostAsked = 64 << 10

// answer is a call of the store's own service.
func answer[Q, A any](s *Store, w http.ResponseWriter, r *http.Request, peer pki.Identity,
	do func(ctx context.Context, peer pki.Identity, q Q) (A, string)) {
	var q Q
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(stallTime))
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostAsked))
	d.DisallowUnknownFields()
	if r.Method != http.MethodPost || d.Decode(&q) != nil {
		s.refuse(w, r, peer, "", "it is no call of this release")
		return
	}
	a, why := do(r.Context(), peer, q)
	if why != "" {
		s.refuse(w, r, peer, "", why)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a)
}

// capabilityTime is how long a capability lasts.
const capabilityTime = 24 * time.Hour

// grant makes a capability for a gateway of the guest.
func (s *Store) grant(_ context.Context, peer pki.Identity, q Asked) (Granted, string) {
	d := s.deals.of(q.Agreement, peer.Gateway)
	switch {
	case d == nil || d.request.Guest != peer.Organization:
		return Granted{}, s.unknown(q.Agreement, peer.Organization)
	case !d.roomed:
		return Granted{}, fmt.Sprintf("its organization says no room for gateway %s: `weir exchange room`", peer.Gateway)
	case !d.life.Reads():
		return Granted{}, fmt.Sprintf("the agreement is %s: %s", d.life.Phase, d.life.Why)
	}
	until := d.now.Add(capabilityTime).Truncate(time.Second)
	access, err := capability.Capability{Store: s.cfg.Site, Agreement: q.Agreement, Organization: peer.Organization, Gateway: peer.Gateway,
		Until: until.Unix()}.Access()
	if err != nil {
		return Granted{}, err.Error()
	}
	return Granted{Access: access, Secret: s.key.Secret(access), Until: until, Now: d.now, Phase: d.life.Phase, Why: d.life.Why}, ""
}

// count meets a gateway of the guest.
func (s *Store) count(_ context.Context, peer pki.Identity, q Counted) (Met, string) {
	d := s.deals.of(q.Agreement, peer.Gateway)
	switch {
	case d == nil || d.request.Guest != peer.Organization:
		return Met{}, s.unknown(q.Agreement, peer.Organization)
	case !d.roomed:
		return Met{}, fmt.Sprintf("its organization says no room for gateway %s: `weir exchange room`", peer.Gateway)
	}
	if err := q.Check(); err != nil {
		return Met{}, err.Error()
	}
	if err := d.request.Bounds(d.answer, &paper.Usage{At: d.now, Of: map[string]paper.Counters{peer.Gateway: q.Counters}}); err != nil {
		return Met{}, err.Error()
	}
	return Met{Counters: s.ledger.Meet(q.Agreement, peer.Gateway, q.Counters).Counters, Now: d.now}, ""
}
