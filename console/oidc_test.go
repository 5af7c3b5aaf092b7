// SPDX-License-Identifier: Apache-2.0

package console

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/coreos/go-oidc/v3/oidc/oidctest"
)

// issuer is one of OpenID Connect. Whoever comes is signed in.
type issuer struct {
	oidctest.Server
	url      string
	key      *ecdsa.PrivateKey
	asked    url.Values // by which somebody came
	nonce    string     // that the token has, if not the one that was asked for
	audience string
	last     string // token that was given
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key, audience: "weir"}
	i.PublicKeys = []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: "k", Algorithm: oidc.ES256}}
	i.Algorithms = []string{oidc.ES256}
	s := httptest.NewServer(i)
	t.Cleanup(s.Close)
	i.url = s.URL
	i.SetIssuer(s.URL)
	return i
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/token" {
		i.Server.ServeHTTP(w, r)
		return
	}
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier"))) // RFC 7636, section 4.6
	if base64.RawURLEncoding.EncodeToString(sum[:]) != i.asked.Get("code_challenge") || r.FormValue("code") != "c" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	nonce := i.nonce
	if nonce == "" {
		nonce = i.asked.Get("nonce")
	}
	i.last = oidctest.SignIDToken(i.key, "k", oidc.ES256, fmt.Sprintf(`{"iss":%q,"aud":%q,"sub":"eve","exp":%d,"nonce":%q}`, i.url,
		i.audience,
		time.Now().Add(time.Hour).Unix(), nonce))
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": i.last})
}

// TestSignInAtAnIssuer: the issuer's token is what the API server gets; what somebody else began,
// or is of another console, does not count.
func TestSignInAtAnIssuer(t *testing.T) {
	i := newIssuer(t)
	c, s, _ := before(t)
	c.cfg.OIDC = &OIDC{Issuer: i.url, Client: "weir"}
	full, err := New(c.cfg)
	if err != nil {
		t.Fatal(err)
	}
	c = full
	start := func(to string) (state string, flow *http.Cookie) {
		t.Helper()
		w := asks(t, c, "GET", "/oidc/start?to="+url.QueryEscape(to), "")
		u, err := url.Parse(w.Header().Get("Location"))
		if err != nil || w.Code != http.StatusFound || !strings.HasPrefix(u.String(), i.url) {
			t.Fatalf("%d to %q, %v: %s", w.Code, u, err, w.Body)
		}
		i.asked = u.Query()
		if i.asked.Get("code_challenge_method") != "S256" || i.asked.Get("redirect_uri") != "https://weir.example.org/oidc/callback" {
			t.Errorf("the issuer is asked %v", i.asked)
		}
		return i.asked.Get("state"), w.Result().Cookies()[0]
	}
	back := func(state string, flow *http.Cookie) *httptest.ResponseRecorder {
		return asks(t, c, "GET", "/oidc/callback?code=c&state="+url.QueryEscape(state), "", func(r *http.Request) {
			if flow != nil {
				r.AddCookie(flow)
			}
		})
	}
	refused := func(what string, w *httptest.ResponseRecorder) {
		t.Helper()
		for _, k := range w.Result().Cookies() {
			if k.Name == c.cookie() && k.Value != "" {
				t.Errorf("%s: somebody is signed in", what)
			}
		}
		if w.Code != http.StatusUnauthorized {
			t.Errorf("%s: %d", what, w.Code)
		}
	}
	state, flow := start("/agreements?which=ours")
	refused("what nobody began", back(state, nil))
	refused("another state", back("x", flow))
	i.nonce = "another"
	refused("another nonce", back(state, flow))
	i.nonce, i.audience = "", "elsewhere"
	refused("a token of another client", back(state, flow))
	i.audience = "weir"
	refused("a token that the API server does not take", back(state, flow))

	s.anyToken = func() string { return i.last }
	w := back(state, flow)
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/agreements?which=ours" {
		t.Fatalf("%d to %q: %s", w.Code, w.Header().Get("Location"), w.Body)
	}
	state, flow = start("https://evil.example.org")
	if w := back(state, flow); w.Header().Get("Location") != "/" {
		t.Errorf("who signed in is led to %q", w.Header().Get("Location"))
	}
}
