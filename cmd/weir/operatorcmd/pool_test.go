// SPDX-License-Identifier: Apache-2.0

package operatorcmd

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/controllers"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/caching"
	"github.com/weir-storage/weir/pki"
)

// TestNamed: a CachePool shows the pool of its name, also of a gateway that has one pool and is of
// an earlier version.
func TestNamed(t *testing.T) {
	report := new(cachepool.Report)
	several := caching.Status{Pools: []caching.Pool{{Name: "main", Limit: 1, Report: report}, {Name: "fast", Limit: 2, Report: report},
		{Name: "mute", Limit: 3}}}
	earlier := caching.Status{Pool: caching.Pool{Limit: 4, Report: report}}
	for _, c := range []struct {
		said  caching.Status
		name  string
		limit int64
		why   string
	}{
		{several, "main", 1, ""}, {several, "fast", 2, ""}, {several, "mute", 0, "earlier version"},
		{several, "tape", 0, `it has no pool "tape", but main, fast, mute`},
		{earlier, "main", 4, ""}, {earlier, "fast", 0, "earlier version"}, {caching.Status{}, "main", 0, "earlier version"},
	} {
		got, err := named(c.said, c.name)
		if got.Limit != c.limit || (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s of %d pools: %+v, %v", c.name, len(c.said.Pools), got, err)
		}
	}
}

// TestAskSilent: a gateway is not reached in several ways, and all are one to the operator, which
// shows none of their texts. They are real ones: the texts are those of the network.
func TestAskSilent(t *testing.T) {
	ca, err := pki.NewAuthority("demo", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	root, err := ca.Pair()
	if err != nil {
		t.Fatal(err)
	}
	id := pki.Identity{Federation: "demo", Organization: "SURF", Site: "ams", Gateway: "ams-operator"}
	own, err := ca.Issue(id, nil, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := pki.Load(root.Cert, own, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	listen := func(accepted func(net.Conn)) string {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				accepted(c)
			}
		}()
		return l.Addr().String()
	}
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	ask := asker(&access.Client{Dial: access.Dialer(creds)})
	texts := map[string]bool{}
	for _, c := range []struct {
		address string
		limit   time.Duration // of the caller; 0: it waits longer than the call takes
	}{
		{address: gone.Addr().String()},
		{address: "ams.invalid:7440"},
		{address: listen(func(c net.Conn) { _ = c.Close() })},
		{address: listen(func(c net.Conn) { t.Cleanup(func() { _ = c.Close() }) }), limit: 100 * time.Millisecond},
	} {
		ctx, end := t.Context(), context.CancelFunc(func() {})
		if c.limit > 0 {
			ctx, end = context.WithTimeout(ctx, c.limit)
		}
		_, err := ask(ctx, federation.Site{Name: "ams", Organization: "SURF"}, federation.Gateway{Name: "ams-1", Addr: c.address}, "main")
		end()
		if !errors.Is(err, controllers.ErrSilent) {
			t.Errorf("%s: %v", c.address, err)
			continue
		}
		texts[err.Error()] = true
	}
	if len(texts) < 4 {
		t.Errorf("the log does not tell how: %v", texts)
	}
}
