// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// standIn answers as an API server: of each kind it has what objects says, for the token "good".
// The browser's test has a real one.
type standIn struct {
	mu      sync.Mutex
	objects map[string]any // by path
	asked   []string
	without string // a column that lists do not have
	// anyToken is a token that counts besides "good"; nil: none does.
	anyToken func() string
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token != "good" && (s.anyToken == nil || token != s.anyToken()) {
		w.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
			Reason: metav1.StatusReasonUnauthorized, Code: http.StatusUnauthorized})
		return
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
		_, _ = io.WriteString(w,
			`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":"<i>eve</i>"}}}`)
	case strings.HasSuffix(r.URL.Path,
		"/selfsubjectaccessreviews"):
		_, _ = io.WriteString(w,
			`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{},"status":{"allowed":true}}`)
	case strings.Contains(r.Header.Get("Accept"), "as=Table"):
		t := printed(path.Base(r.URL.Path), s.objects[r.URL.Path])
		for i, c := range t.ColumnDefinitions {
			if c.Name == s.without {
				t.ColumnDefinitions[i].Name = ""
			}
		}
		_ = json.NewEncoder(w).Encode(t)
	case s.objects[r.URL.Path] != nil:
		_ = json.NewEncoder(w).Encode(s.objects[r.URL.Path])
	default:
		_, _ = fmt.Fprintf(w, `{"kind":%q,"apiVersion":"storage.weir.dev/v1alpha1","items":[]}`, lists[path.Base(r.URL.Path)])
	}
}

var lists = map[string]string{"sites": "SiteList", "geovolumecontents": "GeoVolumeContentList", "storageoffers": "StorageOfferList",
	"storagerequests": "StorageRequestList", "storageagreements": "StorageAgreementList", "storageusages": "StorageUsageList"}

const kindsPath = "/apis/storage.weir.dev/v1alpha1/"

// before is a console before a stand-in, and a client that keeps cookies.
func before(t *testing.T) (c *Console, s *standIn, log *bytes.Buffer) {
	t.Helper()
	s, log = &standIn{objects: map[string]any{}}, new(bytes.Buffer)
	api := httptest.NewServer(s)
	t.Cleanup(api.Close)
	c, err := New(Config{Cluster: &rest.Config{Host: api.URL}, URL: "https://weir.example.org", Now: time.Now, Random: rand.Reader,
		Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return c, s, log
}

func asks(t *testing.T, c *Console, method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "https://weir.example.org"+path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w
}

func signIn(t *testing.T, c *Console) func(*http.Request) {
	t.Helper()
	w := asks(t, c, "POST", "/login", "token=good&to="+url.QueryEscape("//evil.example.org"))
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/" {
		t.Fatalf("signing in: %d to %q", w.Code, w.Header().Get("Location"))
	}
	k := w.Result().Cookies()[0]
	if k.Name != "__Host-weir" || !k.HttpOnly || !k.Secure || k.Path != "/" || strings.Contains(k.Value, "good") {
		t.Fatalf("the cookie is %+v", k)
	}
	return func(r *http.Request) { r.AddCookie(k) }
}

// TestWhoIsNotSignedIn: without a token nothing is shown, and nothing is asked of the API server.
func TestWhoIsNotSignedIn(t *testing.T) {
	c, s, log := before(t)
	for _, at := range []string{"/", "/offers", "/offers/a.b", "/agreements/x", "/usage.csv", "/lend"} {
		if w := asks(t, c, "GET", at, ""); w.Code != http.StatusSeeOther || !strings.HasPrefix(w.Header().Get("Location"), "/login") {
			t.Errorf("%s: %d to %q", at, w.Code, w.Header().Get("Location"))
		}
	}
	if w := asks(t, c, "POST", "/agreements/x", "say=accept"); w.Code != http.StatusSeeOther {
		t.Errorf("who is not signed in accepts: %d", w.Code)
	}
	if len(s.asked) > 0 {
		t.Errorf("the API server was asked %q", s.asked)
	}
	for body, want := range map[string]string{"token=": "Token: missing", "token=a+b": "with blanks",
		"token=stolen": "does not know the token"} {
		if w := asks(t, c, "POST", "/login", body); w.Code == http.StatusSeeOther || !strings.Contains(w.Body.String(), want) ||
			len(w.Result().Cookies()) > 0 {
			t.Errorf("%s: %d: %s", body, w.Code, w.Body)
		}
	}
	if strings.Contains(log.String(), "stolen") {
		t.Error("a token is in the log")
	}
}

// TestRequestsOfOthers: what changes something comes from the console's own pages.
func TestRequestsOfOthers(t *testing.T) {
	c, s, _ := before(t)
	in := signIn(t, c)
	asked := len(s.asked)
	for _, from := range []func(*http.Request){
		func(r *http.Request) { r.Header.Set("Origin", "https://evil.example.org") },
		func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
	} {
		for _, at := range []string{"/agreements/x", "/lend", "/offers/a.b", "/offers/a/withdraw", "/logout", "/login"} {
			if w := asks(t, c, "POST", at, "say=accept&token=good", in, from); w.Code != http.StatusForbidden {
				t.Errorf("%s from elsewhere: %d", at, w.Code)
			}
		}
	}
	if len(s.asked) != asked {
		t.Errorf("the API server was asked %q", s.asked[asked:])
	}
	w := asks(t, c, "GET", "/", "", in)
	for header, want := range map[string]string{"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff",
		"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "Strict-Transport-Security": "max-age"} {
		if !strings.Contains(w.Header().Get(header), want) {
			t.Errorf("%s is %q", header, w.Header().Get(header))
		}
	}
	if w := asks(t, c, "POST", "/logout", "", in); w.Code != http.StatusSeeOther {
		t.Errorf("signing out: %d", w.Code)
	}
	if w := asks(t, c, "GET", "/", "", in); w.Code != http.StatusSeeOther {
		t.Error("who signed out is signed in")
	}
}

func listOf(resource string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: lists[resource], APIVersion: v1alpha1.GroupVersion.String()}
}

// TestLocal: after signing in nobody is led elsewhere.
func TestLocal(t *testing.T) {
	for to, want := range map[string]string{"/agreements?which=ours": "/agreements?which=ours", "": "/", "x": "/", "//evil": "/",
		"https://evil": "/", "/\\evil": "/", "/\t/evil": "/", "/\n/evil": "/", "/\x00/evil": "/"} {
		if got := local(to); got != want {
			t.Errorf("%q leads to %q, want %q", to, got, want)
		}
	}
}

// TestTextIsNoMarkup: what somebody wrote is shown as it is.
func TestTextIsNoMarkup(t *testing.T) {
	c, s, _ := before(t)
	const evil = `<script>alert(1)</script>"'><img src=x>`
	a := v1alpha1.StorageAgreement{Status: v1alpha1.StorageAgreementStatus{Phase: "Requested", Role: "Host", Guest: evil, With: evil,
		Price: evil, Terms: evil, Purpose: evil, Said: []v1alpha1.AgreementStatement{{What: evil, Why: evil, By: evil}}}}
	a.Name, a.Kind, a.APIVersion = "0a6b4c1e-7a0b-4a42-9a2e-0000000000aa", "StorageAgreement", v1alpha1.GroupVersion.String()
	o := v1alpha1.StorageOffer{Spec: v1alpha1.StorageOfferSpec{Price: evil, Terms: evil, Media: evil}}
	o.Name, o.Kind, o.APIVersion, o.Status.Host, o.Status.ForUs = "ams.x", "StorageOffer", a.APIVersion, evil, true
	s.objects[kindsPath+"storageagreements/"+a.Name] = a
	s.objects[kindsPath+"storageoffers/ams.x"] = o
	s.objects[kindsPath+"storageagreements"] = v1alpha1.StorageAgreementList{TypeMeta: listOf("storageagreements"),
		Items: []v1alpha1.StorageAgreement{a}}
	s.objects[kindsPath+"storageoffers"] = v1alpha1.StorageOfferList{TypeMeta: listOf("storageoffers"),
		Items: []v1alpha1.StorageOffer{o}}
	in := signIn(t,
		c)
	for _, at := range []string{"/", "/offers", "/offers/ams.x", "/agreements", "/agreements/" + a.Name,
		"/offers?q=" + url.QueryEscape(evil),
		"/login?to=" + url.QueryEscape(evil)} {
		w := asks(t, c, "GET", at, "", in)
		if text := w.Body.String(); w.Code != http.StatusOK || strings.Contains(text, "<script") || strings.Contains(text, "<img") ||
			strings.Contains(text, "<i>eve") {
			t.Errorf("%s: %d: %s", at, w.Code, text)
		}
	}
}

// TestAccounts: a name that looks like a formula is none in a table.
func TestAccounts(t *testing.T) {
	c, s, _ := before(t)
	u := v1alpha1.StorageUsage{Status: v1alpha1.StorageUsageStatus{Guest: "=cmd()", Host: "SURF",
		ByHost: &v1alpha1.UsageCounters{Stored: 7}}}
	u.Name = "x"
	s.objects[kindsPath+"storageusages"] = v1alpha1.StorageUsageList{TypeMeta: listOf("storageusages"), Items: []v1alpha1.StorageUsage{u}}
	w := asks(t, c, "GET", "/usage.csv", "", signIn(t,
		c))
	if !strings.Contains(w.Body.String(), "\nx,'=cmd(),SURF,host,") || !strings.Contains(w.Header().Get("Content-Disposition"),
		"attachment") {
		t.Errorf("%s", w.Body)
	}
}

// TestBadForms: what is wrong in a form is said by field, with what to write.
func TestBadForms(t *testing.T) {
	c, s, _ := before(t)
	s.objects["/apis/storage.weir.dev/v1alpha1/storageoffers/ams.x"] = map[string]any{"kind": "StorageOffer",
		"apiVersion": "storage.weir.dev/v1alpha1", "metadata": map[string]any{"name": "ams.x"}}
	in := signIn(t, c)
	for _, x := range []struct{ path, body, want string }{
		{"/offers/ams.x", "amount=1Ti&until=2030-01-01", "key: &#34;&#34;: open the offer&#39;s page, and use its form"},
		{"/offers/ams.x", "amount=1Ti&until=2030-01-01&key=0123456789ab&read=x", "The offer was changed since you read it"},
		{"/agreements/x", "say=withdraw", "was not made in this cluster"},
		{"/lend", "name=disks&amount=lots", `Amount: &#34;lots&#34;: write an amount, such as 10Ti or 500Gi.`},
		{"/lend", "name=disks&amount=-1Ti", "write an amount"},
		{"/lend", "amount=1Ti", "Name: missing"},
		{"/lend", "name=disks&amount=1Ti&kind=Tape", "Kind: &#34;Tape&#34;: choose Store, Copy or Cache."},
		{"/lend", "name=disks&amount=1Ti&notice=soon", "Notice: &#34;soon&#34;: write a number of days, such as 30."},
		{"/lend", "name=disks&amount=1Ti&notice=3&grace=9999", "Grace: &#34;9999&#34;"},
		{"/lend", "name=disks&amount=1Ti&automatic=x", "Accepted by itself"},
		{"/offers/ams.x", "amount=1Ti&until=tomorrow", "Until: &#34;tomorrow&#34;: write a day, such as 2027-12-31."},
		{"/offers/ams.x", "until=2030-01-01", "Amount: &#34;&#34;"},
		{"/agreements/x", "say=everything", "is nothing that can be said of an agreement"},
		{"/agreements/x", "say=notice", "tick that you are sure"},
	} {
		w := asks(t, c, "POST", x.path, x.body, in)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), x.want) {
			t.Errorf("%s %s: %d: %s", x.path, x.body, w.Code, w.Body)
		}
	}
	if w := asks(t, c, "POST", "/lend", "name="+strings.Repeat("x", 2*most), in); w.Code == http.StatusSeeOther {
		t.Errorf("a form of %d bytes is taken", 2*most)
	}
	if _, err := New(Config{URL: "weir"}); err == nil || !strings.Contains(err.Error(), "such as https://weir.example.org") {
		t.Errorf("a URL that is none: %v", err)
	}
}

// TestSessionsEnd: after eight hours, or when the token ends.
func TestSessionsEnd(t *testing.T) {
	c, _, _ := before(t)
	now := time.Now()
	c.cfg.Now = func() time.Time { return now }
	in := signIn(t, c)
	if w := asks(t, c, "GET", "/", "", in); w.Code != http.StatusOK {
		t.Fatal(w.Code)
	}
	now = now.Add(sessionTime)
	if w := asks(t, c, "GET", "/", "", in); w.Code != http.StatusSeeOther || len(c.sessions.all) != 0 {
		t.Errorf("after %v: %d, and %d sessions", sessionTime, w.Code, len(c.sessions.all))
	}
	// One account takes no room from others, and who left without a word takes none.
	var firstIn func(*http.Request)
	for i := range mostOfUser + 5 {
		now = now.Add(time.Second)
		if in := signIn(t, c); i == 0 {
			firstIn = in
		}
	}
	if n := len(c.sessions.all); n != mostOfUser {
		t.Errorf("one account has %d sessions", n)
	}
	if w := asks(t, c, "GET", "/", "", firstIn); w.Code != http.StatusSeeOther {
		t.Errorf("the oldest session is there: %d", w.Code)
	}
	now = now.Add(sessionTime)
	signIn(t, c)
	if n := len(c.sessions.all); n != 1 {
		t.Errorf("%d sessions are over, and there", n-1)
	}
	for token, want := range map[string]int64{"x": 0, "a.b.c": 0, "e30.eyJleHAiOjE3MDB9.s": 1700} {
		if got := expires(token); got.IsZero() != (want == 0) || want != 0 && got.Unix() != want {
			t.Errorf("%s ends at %v", token, got)
		}
	}
}

// TestPodWithoutAToken: a console finds its cluster by what each pod is told, and asks it with the
// tokens of people only.
func TestPodWithoutAToken(t *testing.T) {
	s := &standIn{objects: map[string]any{}}
	api := httptest.NewTLSServer(s)
	t.Cleanup(api.Close)
	at, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"KUBERNETES_SERVICE_HOST": at.Hostname(), "KUBERNETES_SERVICE_PORT": at.Port()}
	getenv := func(name string) string { return env[name] }
	cluster, err := inCluster(getenv, file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Cluster: cluster, URL: "https://weir.example.org", Now: time.Now, Random: rand.Reader,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if w := asks(t, c, "GET", "/offers", "", signIn(t, c)); w.Code != http.StatusOK {
		t.Errorf("with a token that counts: %d: %s", w.Code, w.Body)
	}

	if _, err := inCluster(getenv, file+"x"); err == nil || !strings.Contains(err.Error(), "kube-root-ca.crt") {
		t.Errorf("without the authority: %v", err)
	}
	env["KUBERNETES_SERVICE_PORT"] = ""
	if _, err := inCluster(getenv, file); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("outside of a cluster: %v", err)
	}
}
