// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Bounds of sessions (console-2).
const (
	sessionTime  = 8 * time.Hour
	mostSessions = 10_000
	mostOfUser   = 50 // of one account; another takes the place of the oldest
)

// session is somebody who is signed in.
type session struct {
	user string
	api  client.Client
	rest rest.Interface // see rows
	ends time.Time

	mu   sync.Mutex
	may  map[string]asked // what the API server said that he may do
	home home
}

// sessions are all, by the name that the browser has.
type sessions struct {
	mu  sync.Mutex
	all map[string]*session
}

// cookie is the session's name at the browser.
func (c *Console) cookie() string {
	if c.secure {
		return "__Host-weir"
	}
	return "weir"
}

func (c *Console) setCookie(w http.ResponseWriter, name, value string, age time.Duration) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: int(age.Seconds()), Secure: c.secure, HttpOnly: true,
		SameSite: http.SameSiteLaxMode})
}

// session is that of a request; nil: nobody is signed in.
func (c *Console) session(r *http.Request) *session {
	k, err := r.Cookie(c.cookie())
	if err != nil {
		return nil
	}
	c.sessions.mu.Lock()
	defer c.sessions.mu.Unlock()
	s := c.sessions.all[k.Value]
	if s == nil || !c.cfg.Now().Before(s.ends) {
		delete(c.sessions.all, k.Value)
		return nil
	}
	return s
}

// random is a name that nobody guesses.
func (c *Console) random() (string, error) {
	b := make([]byte, 32)
	if _, err := io.ReadFull(c.cfg.Random, b); err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// begin signs somebody in by a token that the API server takes.
func (c *Console) begin(ctx context.Context, w http.ResponseWriter, token string) error {
	api, rows, err := c.connect(token)
	if err != nil {
		return err
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := api.Create(ctx, review); err != nil {
		return err
	}
	if review.Status.UserInfo.Username == "system:anonymous" {
		return &failed{http.StatusUnauthorized, "the API server does not know the token"}
	}
	name, err := c.random()
	if err != nil {
		return err
	}
	now := c.cfg.Now()
	s := &session{user: review.Status.UserInfo.Username, api: api, rest: rows, ends: now.Add(sessionTime), may: map[string]asked{}}
	if exp := expires(token); !exp.IsZero() && exp.Before(s.ends) {
		s.ends = exp
	}
	c.sessions.mu.Lock()
	defer c.sessions.mu.Unlock()
	oldest, own := "", 0
	for n, old := range c.sessions.all {
		switch {
		case !now.Before(old.ends):
			delete(c.sessions.all, n)
		case old.user == s.user:
			if own++; oldest == "" || old.ends.Before(c.sessions.all[oldest].ends) {
				oldest = n
			}
		}
	}
	if own >= mostOfUser {
		delete(c.sessions.all, oldest)
	}
	if len(c.sessions.all) >= mostSessions {
		return &failed{http.StatusServiceUnavailable, "too many people are signed in: try again later"}
	}
	c.sessions.all[name] = s
	c.setCookie(w, c.cookie(), name, s.ends.Sub(now))
	c.cfg.Logger.Info("somebody signed in", "user", s.user)
	return nil
}

// expires is when a token ends, as it says itself; zero: it does not. The API server judges it.
func expires(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Exp int64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(text, &claims) != nil || claims.Exp == 0 {
		return time.Time{}
	}
	return time.Unix(claims.Exp, 0)
}

// forget ends a session.
func (c *Console) forget(w http.ResponseWriter, r *http.Request) {
	if k, err := r.Cookie(c.cookie()); err == nil {
		c.sessions.mu.Lock()
		delete(c.sessions.all, k.Value)
		c.sessions.mu.Unlock()
	}
	c.setCookie(w, c.cookie(), "", -time.Second)
}

func (c *Console) logout(w http.ResponseWriter, r *http.Request) {
	c.forget(w, r)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// loginPage is what the page of that name shows.
type loginPage struct {
	OIDC, To, Why string
}

func (c *Console) showLogin(w http.ResponseWriter, r *http.Request) {
	why := ""
	if r.URL.Query().Get("why") == "over" {
		why = "Your session is over: sign in again."
	}
	c.login(w, http.StatusOK, loginPage{To: local(r.URL.Query().Get("to")), Why: why})
}

func (c *Console) login(w http.ResponseWriter, code int, p loginPage) {
	if c.cfg.OIDC != nil {
		p.OIDC = c.cfg.OIDC.name()
	}
	var b bytes.Buffer
	if err := c.pages["login"].ExecuteTemplate(&b, "base.html", framed{Title: "Sign in", Path: "/login", Page: p}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = b.WriteTo(w)
}

// local is a path of the console itself; others are none.
func local(path string) string {
	u, err := url.Parse(path) // which refuses what browsers leave out, such as tabulators
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") ||
		strings.Contains(path, "\\") {
		return "/"
	}
	return path
}

func (c *Console) takeToken(w http.ResponseWriter, r *http.Request) {
	to, token := local(r.FormValue("to")), strings.TrimSpace(r.FormValue("token"))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		c.login(w, http.StatusBadRequest, loginPage{To: to,
			Why: "Token: missing, or with blanks: paste one, as `kubectl create token` prints it."})
		return
	}
	if err := c.begin(r.Context(), w, token); err != nil {
		code, why := explain(err)
		if unauthorized(err) {
			code, why = http.StatusUnauthorized, "The API server does not know the token: is it whole, of this cluster, and not expired?"
		}
		c.login(w, code, loginPage{To: to, Why: why})
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}
