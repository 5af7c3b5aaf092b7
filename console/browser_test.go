// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

// go test ./console -run Browser -args -screenshots ../docs/images
var screenshots = flag.String("screenshots", "", "folder to put pictures for the documentation in")

// shown are the pictures that docs/exchange.md has.
var shown = []string{"overview", "ask", "accept", "agreement"}

// person is somebody before a browser, who has a keyboard and no mouse.
type person struct {
	*house
	name string
	tab  context.Context

	mu      sync.Mutex
	weight  int64    // bytes that came for the present page
	strange []string // addresses of others that were asked
}

// heaviest is what a page may weigh, in bytes.
const heaviest = 200 << 10

// sits opens a browser of its own.
func (h *house) sits(name string) *person {
	h.t.Helper()
	alloc, stop := chromedp.NewExecAllocator(h.t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(h.t)), chromedp.NoSandbox, chromedp.Flag("ignore-certificate-errors", true),
		chromedp.Flag("disable-dev-shm-usage", true))...)
	h.t.Cleanup(stop)
	tab, end := chromedp.NewContext(alloc)
	h.t.Cleanup(end)
	p := &person{house: h, name: name, tab: tab}
	chromedp.ListenTarget(tab, func(ev any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch e := ev.(type) {
		case *network.EventRequestWillBeSent:
			if e.Type == network.ResourceTypeDocument {
				p.weight = 0
			}
			if !strings.HasPrefix(e.Request.URL, h.url+"/") && !strings.HasPrefix(e.Request.URL, "data:") {
				p.strange = append(p.strange, e.Request.URL)
			}
		case *network.EventLoadingFinished:
			p.weight += int64(e.EncodedDataLength)
		}
	})
	h.ok(chromedp.Run(tab)) // the browser lives as long as this context
	p.does(network.Enable(), chromedp.EmulateViewport(1024, 800))
	return p
}

// does has the browser do something. The limit ends what hangs.
func (p *person) does(all ...chromedp.Action) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.tab, 2*time.Minute)
	defer cancel()
	if err := chromedp.Run(ctx, all...); err != nil {
		var at, text string
		_ = chromedp.Run(p.tab, chromedp.Location(&at), chromedp.Evaluate("document.body.innerText", &text))
		p.t.Fatalf("%s of %s, at %s: %v: %s", p.name, p.organization, at, err, text)
	}
}

// reads returns the page's text.
func (p *person) reads() (text string) {
	p.t.Helper()
	p.asks("document.body.innerText", &text)
	return text
}

// asks evaluates an expression in the page. A page that is loaded again meanwhile is asked once
// more.
func (p *person) asks(expression string, answer any) {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(p.tab, 30*time.Second)
		err := chromedp.Run(ctx, chromedp.Evaluate(expression, answer))
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s of %s: %s: %v", p.name, p.organization, expression, err)
		}
	}
}

// goes opens a page of the console.
func (p *person) goes(path string) {
	p.t.Helper()
	p.does(chromedp.Navigate(p.url + path))
	p.looks(path)
}

// waits until the page says something, which it does by itself or when it is loaded again.
func (p *person) waits(path, text string) {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		p.does(chromedp.Navigate(p.url + path))
		is := p.reads()
		if strings.Contains(is, text) {
			p.looks(path)
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s of %s, at %s: it does not say %q: %s", p.name, p.organization, path, text, is)
		}
	}
}

// looks checks what holds of every page: it is light, comes from here alone, and fits on a phone.
func (p *person) looks(path string) {
	p.t.Helper()
	var wide int64
	p.does(chromedp.EmulateViewport(360, 700))
	p.asks("document.documentElement.scrollWidth", &wide)
	p.does(chromedp.EmulateViewport(1024, 800))
	p.mu.Lock()
	defer p.mu.Unlock()
	if wide > 360 {
		p.t.Errorf("%s is %d px wide on a phone of 360", path, wide)
	}
	if p.weight > heaviest || p.weight == 0 {
		p.t.Errorf("%s weighs %d bytes", path, p.weight)
	}
	if len(p.strange) > 0 {
		p.t.Errorf("%s asks others: %q", path, p.strange)
	}
}

// reaches presses the tabulator until something has the focus.
func (p *person) reaches(selector string) {
	p.t.Helper()
	for range 120 {
		var there bool
		p.does(chromedp.KeyEvent(kb.Tab))
		p.asks(fmt.Sprintf("document.activeElement.matches(%q)", selector), &there)
		if there {
			return
		}
	}
	p.t.Fatalf("%s: nobody reaches %s by keyboard: %s", p.name, selector, p.reads())
}

// types reaches something and types.
func (p *person) types(selector, text string) {
	p.t.Helper()
	p.reaches(selector)
	p.does(chromedp.KeyEvent(text))
}

// presses reaches a button or a link and presses it, and waits for the page that it leads to.
func (p *person) presses(selector string) {
	p.t.Helper()
	p.reaches(selector)
	ctx, cancel := context.WithTimeout(p.tab, time.Minute)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, chromedp.KeyEvent(kb.Enter)); err != nil {
		p.t.Fatalf("%s: press %s: %v", p.name, selector, err)
	}
}

// signs in.
func (p *person) signs(token string) {
	p.t.Helper()
	p.goes("/")
	if text := p.reads(); !strings.Contains(text, "Token of this cluster") || strings.Contains(text, "Sign out") {
		p.t.Fatalf("who is not signed in reads %q", text)
	}
	p.types("textarea[name=token]", token)
	p.presses("main button")
	if text := p.reads(); !strings.Contains(text, "system:serviceaccount:default:"+p.name) || !strings.Contains(text, p.organization) {
		p.t.Fatalf("%s signed in, and reads %q", p.name, text)
	}
}

// pictures takes a picture of the page.
func (p *person) pictures(name string) {
	p.t.Helper()
	var png []byte
	p.does(chromedp.FullScreenshot(&png, 100))
	if len(png) < 5000 {
		p.t.Errorf("picture %s has %d bytes", name, len(png))
	}
	if file := filepath.Join(*screenshots, "console-"+name+".png"); *screenshots != "" && slices.Contains(shown, name) {
		p.ok(os.WriteFile(file, png, 0o644))
	}
}

func (p *person) at() string {
	p.t.Helper()
	var at string
	p.does(chromedp.Location(&at))
	u, err := url.Parse(at)
	p.ok(err)
	return u.Path
}

// count is what one side counted of an agreement.
func (f *fed) count(id string, stored quantity.Bytes, by, side string, erased bool) {
	f.t.Helper()
	u := paper.Usage{ID: id, Guest: "RUG", Host: "SURF", By: by, Organization: side, At: f.now().UTC().Truncate(time.Second),
		Of: map[string]paper.Counters{"gro-1": {Puts: 70, In: 2 * stored, Stored: stored, ByteHours: float64(stored)}}}
	if erased {
		u.Of, u.Erased = nil, &paper.Deletion{Moment: paper.Moment{At: u.At, By: "store"}, Objects: 70, Bytes: stored}
	}
	p := paper.At{Paper: paper.Paper{Usage: &u}}
	if is, err := f.reg.GetPaper(f.t.Context(), p.Name()); err == nil {
		p.Revision = is.Revision
	}
	f.ok(f.reg.PutPapers(f.t.Context(), p))
}

// TestAgreementInABrowser: two people of two organizations, each at the console of their own
// cluster, make an agreement, see what is used of it, and end it, by keyboard. Who may only look
// reads all of it and can change nothing.
func TestAgreementInABrowser(t *testing.T) {
	f := newFed(t)
	host := f.house("SURF", "ams", map[string]string{latitude: "52.4", longitude: "4.9"})
	guest := f.house("RUG", "gro", map[string]string{latitude: "53.2", longitude: "6.6"})
	lender, borrower, looker := host.sits("lender"), guest.sits("borrower"), host.sits("looker")
	lender.signs(host.person("lender", exchangeRules))
	borrower.signs(guest.person("borrower", exchangeRules))
	look := host.person("looker", viewRules)
	looker.signs(look)

	lender.goes("/lend")
	lender.pictures("lend")
	lender.types("input[name=name]", "disks")
	lender.types("input[name=amount]", "100Ti")
	lender.types("input[name=price]", "free until 2028")
	lender.types("input[name=media]", "HDD")
	lender.presses("main button")
	if at := lender.at(); at != "/offers/disks" {
		t.Fatalf("who made an offer is at %s", at)
	}
	lender.waits("/offers?whose=ours", "100 TiB of 100 TiB")
	looker.goes("/lend")
	if text := looker.reads(); !strings.Contains(text, "You may not make offers") {
		t.Errorf("who may only look reads %q", text)
	}

	borrower.waits("/offers", "ams.disks")
	borrower.pictures("offers")
	borrower.goes("/offers?q=hdd&amount=200Ti")
	if text := borrower.reads(); !strings.Contains(text, "There are none.") {
		t.Errorf("an offer that is too small is found: %q", text)
	}
	borrower.goes("/offers?q=hdd&amount=10Ti")
	borrower.presses("tbody a")
	borrower.types("input[name=amount]", "10Ti")
	borrower.types("input[name=purpose]", "climate runs")
	borrower.pictures("ask")
	borrower.presses("main form button")
	path := borrower.at()
	id := strings.TrimPrefix(path, "/agreements/")
	borrower.waits(path, "the host accepts or declines")
	if text := borrower.reads(); strings.Contains(text, "Accept\n") || !strings.Contains(text, "Withdraw the request") {
		t.Errorf("the guest reads %q", text)
	}

	looker.waits(path, "the host accepts or declines")
	if text := looker.reads(); strings.Contains(text, "What we can say") {
		t.Errorf("who may only look is shown forms: %q", text)
	}
	_, cookie := looker.cookie()
	if res, text := host.do("POST", path, cookie, "say=accept", host.url); res.StatusCode != 403 ||
		!strings.Contains(text, "You may not do that") || !strings.Contains(text, "weir-exchange") {
		t.Errorf("who may only look accepts: %s: %s", res.Status, text)
	}
	lender.waits("/", "Your move")
	lender.pictures("overview")
	lender.presses(".card.mind a")
	lender.pictures("accept")
	lender.presses("main form button")
	lender.waits(path, "accepted")
	lender.waits(path, "Active")
	borrower.waits(path, "640 GiB")

	for i, stored := range []quantity.Bytes{20 << 30, 90 << 30, 160 << 30, 150 << 30, 310 << 30} {
		f.advance(7 * time.Hour)
		f.count(id, stored, "gro-1", "RUG", false)
		f.count(id, stored, "ams", "SURF", false)
		await(guest, id, func(u *v1alpha1.StorageUsage) bool { return len(u.Status.History) > i && u.Status.Differs == "" })
	}
	borrower.waits(path, "What both sides counted")
	borrower.pictures("agreement")
	var drawn bool
	borrower.asks("document.querySelectorAll('section svg path').length > 5", &drawn)
	if !drawn {
		t.Error("no chart is drawn")
	}
	borrower.goes("/usage")
	borrower.pictures("usage")
	if text := borrower.reads(); !strings.Contains(text, "310 GiB stored at others") {
		t.Errorf("usage is %q", text)
	}
	_, cookie = borrower.cookie()
	if res, text := guest.do("GET", "/usage.csv", cookie, "", ""); res.StatusCode != 200 ||
		!strings.Contains(text, id+",RUG,SURF,host,") || strings.Count(text, "\n") != 3 {
		t.Errorf("usage for accounts: %s: %s", res.Status, text)
	}

	// The end, of which both have to be sure.
	lender.goes(path)
	if res, text := host.do("POST", path, lender.mustCookie(), "say=notice&why=x", host.url); res.StatusCode != 400 ||
		!strings.Contains(text, "tick that you are sure") {
		t.Errorf("notice by mistake: %s: %s", res.Status, text)
	}
	lender.opens("Give notice")
	lender.types("details[open] input[name=why]", "the disks are old")
	lender.types("details[open] input[name=sure]", " ")
	lender.presses("details[open] button")
	borrower.waits(path, "the host gave notice (the disks are old)")
	borrower.opens("Nothing is needed there any more")
	borrower.types("details[open] input[name=sure]", " ")
	borrower.presses("details[open] button")
	lender.waits(path, "the host deletes")
	f.count(id, 310<<30, "ams", "SURF", true)
	lender.waits(path, "Ended")
	lender.pictures("story")
	borrower.waits("/agreements?which=over", "Ended")

	// A form that is sent twice asks once; what nobody answered is withdrawn.
	borrower.goes("/offers/ams.disks")
	var read, key string
	borrower.asks("document.querySelector('input[name=read]').value", &read)
	borrower.asks("document.querySelector('input[name=key]').value", &key)
	form := "amount=10Ti&until=2099-01-01&read=" + read + "&key=" + key
	first, text := guest.do("POST", "/offers/ams.disks", borrower.mustCookie(), form, guest.url)
	again, _ := guest.do("POST", "/offers/ams.disks", borrower.mustCookie(), form, guest.url)
	path = first.Header.Get("Location")
	if first.StatusCode != http.StatusSeeOther || again.StatusCode != http.StatusSeeOther || again.Header.Get("Location") != path {
		t.Fatalf("sent twice: %s, %s: %s", first.Status, again.Status, text)
	}
	borrower.waits(path, "Withdraw the request")
	borrower.presses("main form button")
	borrower.waits(path, "the guest withdrew the request")
	lender.waits(path, "the guest withdrew the request")

	lodges(t, f, lender, borrower)

	lender.presses(".who button")
	if text := lender.reads(); !strings.Contains(text, "Token of this cluster") {
		t.Errorf("who signed out reads %q", text)
	}
}

// opens opens what is folded, by its title.
func (p *person) opens(title string) {
	p.t.Helper()
	for range 120 {
		var there bool
		p.does(chromedp.KeyEvent(kb.Tab))
		p.asks(fmt.Sprintf("document.activeElement.tagName == 'SUMMARY' && document.activeElement.textContent == %q", title), &there)
		if there {
			p.does(chromedp.KeyEvent(kb.Enter))
			return
		}
	}
	p.t.Fatalf("%s: nobody reaches %q by keyboard: %s", p.name, title, p.reads())
}

// await waits until the usage of an agreement is as it should be.
func await(h *house, id string, as func(*v1alpha1.StorageUsage) bool) {
	h.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		u := &v1alpha1.StorageUsage{}
		err := h.api.Get(h.t.Context(), types.NamespacedName{Name: id}, u)
		if err == nil && as(u) {
			return
		}
		if time.Now().After(end) {
			h.t.Fatalf("usage of %s is %+v, %v", id, u.Status, err)
		}
	}
}
