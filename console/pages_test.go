// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// crowdPages are the pages that show much, each by every part and filter that it has.
var crowdPages = []string{"/", "/?q=data-09", "/?page=20", "/?sites=2",
	"/offers", "/offers?q=org-042", "/offers?q=nvme&amount=50Ti", "/offers?amount=20Ti", "/offers?whose=ours",
	"/offers?kind=Store&q=tape", "/offers?page=20", "/offers/site-042.disks-3",
	"/agreements", "/agreements?q=org-042&which=all", "/agreements?which=ours", "/agreements?which=over",
	"/agreements?which=all&page=20", "/agreements/" + crowdID(1),
	"/usage", "/usage?q=org-042", "/usage?page=20", "/usage.csv"}

// reader is somebody who is signed in, and reads.
func (h *house) reader() func(path string) (body string, size int) {
	h.t.Helper()
	token := h.person("reader", exchangeRules)
	cl := insecure()
	cl.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	cookie := ""
	do := func(method, path, body string) (*http.Response, string, int) {
		ctx, stop := context.WithTimeout(h.t.Context(), time.Minute)
		defer stop()
		req, err := http.NewRequestWithContext(ctx, method, h.url+path, stringsReader(body))
		h.ok(err)
		if body != "" {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		req.Header.Set("Cookie", cookie)
		req.Header.Set("Accept-Encoding", "gzip") // as browsers do
		res, err := cl.Do(req)
		h.ok(err)
		defer func() { _ = res.Body.Close() }()
		text, err := io.ReadAll(res.Body)
		h.ok(err)
		size := len(text)
		if res.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(bytes.NewReader(text))
			h.ok(err)
			text, err = io.ReadAll(z)
			h.ok(err)
		}
		return res, string(text), size
	}
	res, text, _ := do("POST", "/login", "token="+url.QueryEscape(token))
	if len(res.Cookies()) != 1 {
		h.t.Fatalf("signing in: %s: %s", res.Status, text)
	}
	cookie = res.Cookies()[0].Name + "=" + res.Cookies()[0].Value
	return func(path string) (string, int) {
		h.t.Helper()
		res, text, size := do("GET", path, "")
		if res.StatusCode != http.StatusOK {
			h.t.Fatalf("%s: %s: %s", path, res.Status, text)
		}
		return text, size
	}
}

// TestPagesOfMany: with 1 000 offers, agreements, counts and volumes of 100 organizations no page
// weighs more than it may, and all is counted. It logs how long each takes.
func TestPagesOfMany(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of objects take most of a minute")
	}
	h := crowd(t)
	reads := h.reader()
	for _, path := range crowdPages {
		var took []time.Duration
		var size int
		for range 5 {
			began := time.Now()
			_, size = reads(path)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		t.Logf("%-40s %6.1f ms %6.1f KiB", path, took[len(took)/2].Seconds()*1000, float64(size)/1024)
		if size > heaviest {
			t.Errorf("%s: %d KiB, at most %d are allowed", path, size>>10, heaviest>>10)
		}
	}
	for path, want := range map[string][]string{
		"/usage":                {"500 TiB stored at others", "500 TiB stored by others", "50 agreements", "1000 in all"},
		"/offers":               {"990 offers"},
		"/":                     {"The first 10 of ", "Part 1 of 2, 100 in all", "Part 1 of 20, 1000 in all", "more lines are not drawn"},
		"/agreements?which=all": {"1000 agreements"},
	} {
		text, _ := reads(path)
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s does not say %q", path, w)
			}
		}
	}
	if text, _ := reads("/usage.csv"); strings.Count(text, "\n") != 1+2*manyTogether {
		t.Errorf("accounts have %d lines", strings.Count(text, "\n"))
	}
}

// BenchmarkPages reads each page as a person does.
func BenchmarkPages(b *testing.B) {
	h := crowd(b)
	reads := h.reader()
	for _, path := range crowdPages {
		b.Run(fmt.Sprintf("page=%s", path), func(b *testing.B) {
			var size int
			for b.Loop() {
				_, size = reads(path)
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/page")
			b.ReportMetric(float64(size)/1024, "KiB/page")
		})
	}
}
