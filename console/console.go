// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Config has what a Console needs.
type Config struct {
	// Cluster says where the API server is, and by which authority it is known. Its credentials are
	// not used.
	Cluster *rest.Config
	// URL is where people reach the console, such as https://weir.example.org.
	URL string
	// OIDC lets people sign in at their institution; nil: they give a token.
	OIDC *OIDC
	Now  func() time.Time
	// Random is cryptographic randomness.
	Random io.Reader
	Logger *slog.Logger
}

// Console serves the pages. It may be used by many goroutines.
type Console struct {
	cfg      Config
	secure   bool
	sessions sessions
	pages    map[string]*template.Template
	mux      http.Handler
}

var _ http.Handler = (*Console)(nil)

//go:embed pages/*.html
var pageFiles embed.FS

//go:embed static/style.css
var style []byte

// New makes a console. Nothing is dialled.
func New(cfg Config) (*Console, error) {
	at, err := url.Parse(cfg.URL)
	if err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http" {
		return nil, fmt.Errorf("console: URL %q: give where people reach it, such as https://weir.example.org", cfg.URL)
	}
	cfg.URL = strings.TrimSuffix(cfg.URL, "/")
	c := &Console{cfg: cfg, secure: at.Scheme == "https", sessions: sessions{all: map[string]*session{}},
		pages: map[string]*template.Template{}}
	base, err := template.New("base.html").Funcs(functions()).ParseFS(pageFiles, "pages/base.html")
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"overview", "offers", "offer", "lend", "agreements", "agreement", "usage", "login", "problem"} {
		page, err := base.Clone()
		if err == nil {
			page, err = page.ParseFS(pageFiles, "pages/"+name+".html")
		}
		if err != nil {
			return nil, fmt.Errorf("page %s: %w", name, err)
		}
		c.pages[name] = page
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /static/style.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		w.Header().Set("Cache-Control", "max-age=3600")
		_, _ = w.Write(style) // who went does not read it
	})
	mux.HandleFunc("GET /login", c.showLogin)
	mux.HandleFunc("POST /login", c.takeToken)
	mux.HandleFunc("POST /logout", c.logout)
	if cfg.OIDC != nil {
		mux.HandleFunc("GET /oidc/start", c.startOIDC)
		mux.HandleFunc("GET /oidc/callback", c.endOIDC)
	}
	for pattern, page := range map[string]func(*visit) error{
		"GET /{$}": overview, "GET /offers": offers, "GET /offers/{name}": offer, "POST /offers/{name}": ask,
		"GET /lend": lend, "POST /lend": makeOffer, "POST /offers/{name}/withdraw": withdraw,
		"GET /agreements": agreements, "GET /agreements/{id}": agreement, "POST /agreements/{id}": say,
		"GET /usage": usages, "GET /usage.csv": usageCSV,
	} {
		mux.HandleFunc(pattern, c.signedIn(page))
	}
	guard := http.NewCrossOriginProtection() // console-3
	c.mux = guard.Handler(mux)
	return c, nil
}

// most bounds what a form may have, in bytes.
const most = 64 << 10

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self'; form-action 'self'; "+
		"base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	if c.secure {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	r.Body = http.MaxBytesReader(w, r.Body, most)
	c.mux.ServeHTTP(w, r)
}

// visit is one request of somebody who is signed in.
type visit struct {
	*http.Request
	c *Console
	s *session
	w http.ResponseWriter
}

// signedIn serves a page to who is signed in, and leads others to sign in.
func (c *Console) signedIn(page func(*visit) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := c.session(r)
		if s == nil {
			to := "/login"
			if r.Method == http.MethodGet {
				to += "?to=" + url.QueryEscape(r.URL.RequestURI())
			}
			http.Redirect(w, r, to, http.StatusSeeOther)
			return
		}
		v := &visit{r, c, s, w}
		err := page(v)
		switch {
		case err == nil:
		case unauthorized(err):
			c.forget(w, r)
			http.Redirect(w, r, "/login?why=over", http.StatusSeeOther)
		default:
			v.problem(err)
		}
	}
}

// framed is what every page gets.
type framed struct {
	Title, Path, User string
	Home              home
	Refresh           int // seconds; 0: no
	Page              any
}

// show writes a page.
func (v *visit) show(name, title string, page any, refresh int) error {
	var b bytes.Buffer
	if err := v.c.pages[name].ExecuteTemplate(&b, "base.html", framed{Title: title, Path: v.URL.Path, User: v.s.user, Home: v.home(),
		Refresh: refresh, Page: page}); err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = b.WriteTo(v.w) // who went does not read it
	return nil
}

// to leads to another page after something was changed.
func (v *visit) to(path string) error {
	http.Redirect(v.w, v.Request, path, http.StatusSeeOther)
	return nil
}

// failed is an error with the status that HTTP has for it.
type failed struct {
	code int
	what string
}

func (f *failed) Error() string { return f.what }

func wrong(format string, a ...any) error {
	return &failed{http.StatusBadRequest, fmt.Sprintf(format, a...)}
}

// problem tells what is wrong, and what to do.
func (v *visit) problem(err error) {
	code, what := explain(err)
	if f := (*failed)(nil); errors.As(err, &f) {
		code, what = f.code, f.what
	}
	if code >= http.StatusInternalServerError {
		v.c.cfg.Logger.Warn("a page cannot be shown", "path", v.URL.Path, "user", v.s.user, "error", err)
	}
	var b bytes.Buffer
	if err := v.c.pages["problem"].ExecuteTemplate(&b, "base.html", framed{Title: "That is not possible", Path: v.URL.Path, User: v.s.user,
		Home: v.home(), Page: what}); err != nil {
		http.Error(v.w, what, code)
		return
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(code)
	_, _ = b.WriteTo(v.w)
}
