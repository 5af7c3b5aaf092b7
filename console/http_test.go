// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strings"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

func stringsReader(s string) io.Reader { return strings.NewReader(s) }

// insecure is a client that takes the test server's certificate.
func insecure() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // of a test
}

// cookie is the session's that the browser has.
func (p *person) cookie() (c *network.Cookie, value string) {
	p.t.Helper()
	p.does(chromedp.ActionFunc(func(ctx context.Context) error {
		all, err := network.GetCookies().Do(ctx)
		for _, k := range all {
			if k.Name == "__Host-weir" {
				c, value = k, k.Value
			}
		}
		return err
	}))
	return c, value
}

func (p *person) mustCookie() string {
	p.t.Helper()
	c, value := p.cookie()
	if c == nil || !c.HTTPOnly || !c.Secure || c.SameSite != network.CookieSameSiteLax {
		p.t.Fatalf("the session's cookie is %+v", c)
	}
	return value
}
