// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"crypto/subtle"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// OIDC is where people sign in (OpenID Connect Core 1.0, section 3.1: the authorization code flow,
// with RFC 7636). The API server has to take the issuer's ID tokens for this client.
type OIDC struct {
	// Issuer is a URL, and Client this console's name there.
	Issuer, Client string
	// Secret is the client's; empty: it has none.
	Secret string
	// Scopes are asked for besides openid, such as email and groups.
	Scopes []string
	// Client of HTTP; nil: the default.
	HTTP *http.Client

	mu       sync.Mutex
	provider *oidc.Provider
}

func (o *OIDC) name() string {
	if u, err := url.Parse(o.Issuer); err == nil {
		return u.Host
	}
	return o.Issuer
}

func (o *OIDC) context(ctx context.Context) context.Context {
	if o.HTTP != nil {
		return oidc.ClientContext(ctx, o.HTTP)
	}
	return ctx
}

// flow is the provider's part, which is asked for once.
func (o *OIDC) flow(ctx context.Context, redirect string) (*oauth2.Config, *oidc.IDTokenVerifier, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.provider == nil {
		p, err := oidc.NewProvider(o.context(context.WithoutCancel(ctx)), o.Issuer)
		if err != nil {
			return nil, nil, err
		}
		o.provider = p
	}
	return &oauth2.Config{ClientID: o.Client, ClientSecret: o.Secret, Endpoint: o.provider.Endpoint(), RedirectURL: redirect,
		Scopes: append([]string{oidc.ScopeOpenID}, o.Scopes...)}, o.provider.Verifier(&oidc.Config{ClientID: o.Client}), nil
}

// flowTime is how long signing in may take.
const flowTime = 10 * time.Minute

func (c *Console) flowCookie() string { return c.cookie() + "-flow" }

func (c *Console) startOIDC(w http.ResponseWriter, r *http.Request) {
	cfg, _, err := c.cfg.OIDC.flow(r.Context(), c.cfg.URL+"/oidc/callback")
	state, err2 := c.random()
	nonce, err3 := c.random()
	if err != nil || err2 != nil || err3 != nil {
		c.cfg.Logger.Warn("nobody can sign in at the issuer", "issuer", c.cfg.OIDC.Issuer, "error", err)
		c.login(w, http.StatusBadGateway, loginPage{Why: "The issuer does not answer: try again later, or give a token."})
		return
	}
	verifier := oauth2.GenerateVerifier()
	to := local(r.URL.Query().Get("to"))
	c.setCookie(w, c.flowCookie(), strings.Join([]string{state, nonce, verifier, url.QueryEscape(to)}, "."), flowTime)
	http.Redirect(w, r, cfg.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)), http.StatusFound)
}

func (c *Console) endOIDC(w http.ResponseWriter, r *http.Request) {
	refuse := func(why string, err error) {
		c.cfg.Logger.Warn("signing in failed", "why", why, "error", err)
		c.login(w, http.StatusUnauthorized, loginPage{Why: why})
	}
	k, err := r.Cookie(c.flowCookie())
	var parts []string
	if err == nil {
		parts = strings.SplitN(k.Value, ".", 4)
	}
	c.setCookie(w, c.flowCookie(), "", -time.Second)
	if len(parts) != 4 || subtle.ConstantTimeCompare([]byte(parts[0]), []byte(r.URL.Query().Get("state"))) != 1 {
		refuse("That did not begin here, or took too long: sign in again.", err)
		return
	}
	if e := r.URL.Query().Get("error"); e != "" {
		refuse("The issuer refused: "+e+" "+r.URL.Query().Get("error_description"), nil)
		return
	}
	cfg, verifier, err := c.cfg.OIDC.flow(r.Context(), c.cfg.URL+"/oidc/callback")
	if err != nil {
		refuse("The issuer does not answer: try again later.", err)
		return
	}
	ctx := c.cfg.OIDC.context(r.Context())
	got, err := cfg.Exchange(ctx, r.URL.Query().Get("code"), oauth2.VerifierOption(parts[2]))
	if err != nil {
		refuse("The issuer gives no token: sign in again.", err)
		return
	}
	raw, _ := got.Extra("id_token").(string)
	id, err := verifier.Verify(ctx, raw)
	if err != nil || subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(parts[1])) != 1 {
		refuse("The issuer's token does not count: sign in again.", err)
		return
	}
	if err := c.begin(r.Context(), w, raw); err != nil {
		refuse("The API server of this cluster does not take the issuer's tokens: its administrator has to see to that.", err)
		return
	}
	to, err := url.QueryUnescape(parts[3])
	if err != nil {
		to = "/"
	}
	http.Redirect(w, r, local(to), http.StatusSeeOther)
}
