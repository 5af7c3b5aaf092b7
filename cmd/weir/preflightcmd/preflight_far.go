// SPDX-License-Identifier: Apache-2.0

package preflightcmd

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/weir-storage/weir/cmd/weir/gatewaycmd"
	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/config"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/pki"
)

// checkFar checks what a gateway with this configuration talks to.
func (p *preflight) checkFar(ctx context.Context, cfg config.Config) []finding {
	if err := cfg.Check(); err != nil {
		return []finding{{Check: "configuration", Verdict: broken, Found: strings.ReplaceAll(err.Error(), "\n", "; "),
			Mend: "correct " + p.config}}
	}
	creds, err := gatewaycmd.Credentials(&cfg, p.sh.Now, nil)
	if err != nil {
		return []finding{{Check: "certificate", Verdict: broken, Found: strings.ReplaceAll(err.Error(), "\n", "; "),
			Mend: "have `weir pki issue` make one for this gateway"}}
	}
	out := []finding{certificate(creds, p.sh.Now())}
	out = append(out, p.checkRegistry(ctx, cfg)...)
	return append(out, checkStore(ctx, cfg.Store), p.checkSkew(ctx, cfg.Store))
}

// soon is the time before its end at which a certificate should be renewed.
const soon = 30 * 24 * time.Hour

func certificate(creds *pki.Credentials, now time.Time) finding {
	f := finding{Check: "certificate", Found: fmt.Sprintf("%s, until %s", creds.Identity(), cli.Stamp(creds.Expires()))}
	switch left := creds.Expires().Sub(now); {
	case left <= 0:
		f.Verdict, f.Mend = broken, "it has expired: issue another with `weir pki issue`"
	case left < soon:
		f.Verdict, f.Mend = doubt, "it expires soon: issue another with `weir pki issue`"
	}
	return f
}

// slow is how long a registry may take to answer. With a slower one takeovers are late.
const slow = 500 * time.Millisecond

func (p *preflight) checkRegistry(ctx context.Context, cfg config.Config) []finding {
	f := finding{Check: "registry",
		Mend: "see that its members run, that registry.endpoints are their addresses, and that no firewall is between"}
	cl, err := p.connect(access.Connection{Registry: cfg.Registry.Endpoints, CA: cfg.TLS.CA, Cert: cfg.TLS.Cert, Key: cfg.TLS.Key,
		Federation: cfg.Federation})
	if err != nil {
		f.Verdict, f.Found = broken, err.Error()
		return []finding{f}
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*farTime)
	defer cancel()
	began := p.sh.Now()
	if _, err := cl.Registry.Head(ctx); err != nil {
		f.Verdict, f.Found = broken, fmt.Sprintf("%s: %v", strings.Join(cfg.Registry.Endpoints, ", "), err)
		return []finding{f}
	}
	first := p.sh.Now().Sub(began).Round(time.Millisecond) // with the time to connect
	began = p.sh.Now()
	sites, err := cl.Registry.Sites(ctx)
	if err != nil {
		f.Verdict, f.Found = broken, err.Error()
		return []finding{f}
	}
	took := p.sh.Now().Sub(began).Round(time.Millisecond)
	f.Found, f.Mend = fmt.Sprintf("answers with a quorum in %v (the first time in %v)", took, first), ""
	if took > slow {
		f.Verdict, f.Mend = doubt, "takeovers wait for it: put its members nearer, or on faster disks"
	}
	out := []finding{f, siteName(cfg, sites)}
	for _, s := range sites {
		for _, g := range s.Site.Gateways {
			if g.Name != cfg.Gateway {
				out = append(out, reach(ctx, cl, s, g))
			}
		}
	}
	return out
}

// siteName checks that the site's name is free or belongs to this organization.
func siteName(cfg config.Config, sites []federation.SiteStatus) finding {
	f := finding{Check: "site " + cfg.Site, Found: "is new"}
	for _, s := range sites {
		if s.Site.Name != cfg.Site {
			continue
		}
		if f.Found = "is registered, by organization " + s.Site.Organization; s.Site.Organization != cfg.Organization {
			f.Verdict, f.Mend = broken, "choose another name for the site: this one belongs to another organization"
		}
	}
	return f
}

// reach calls a gateway of another site, as a gateway does.
func reach(ctx context.Context, cl *access.Client, s federation.SiteStatus, g federation.Gateway) finding {
	f := finding{Check: "gateway " + g.Name + " at " + s.Site.Name, Found: g.Addr + " answers"}
	err := cl.Call(ctx, farTime, s.Site, g, func(ctx context.Context, c forwardpb.ForwardClient) error {
		_, err := c.Status(ctx, &forwardpb.StatusRequest{Volume: "none"})
		return err
	})
	if err != nil {
		f.Verdict, f.Found = doubt, err.Error()
		f.Mend = "if it should be up: open TCP to " + g.Addr + " from here; copies at that site cannot be had otherwise"
	}
	return f
}

func checkStore(ctx context.Context, c config.Store) finding {
	f := finding{Check: "store", Mend: "see that the store runs, that the bucket is there, and that the account may read and write it"}
	ctx, cancel := context.WithTimeout(ctx, 2*farTime)
	defer cancel()
	var said strings.Builder
	_, info, err := gatewaycmd.OpenStore(ctx, c, slog.New(slog.NewTextHandler(&said, nil)))
	switch {
	case err != nil:
		f.Verdict, f.Found = broken, err.Error()
	case info == federation.SiteStore{}:
		f.Verdict, f.Found, f.Mend = doubt, "the site has none", "sealed segments stay on the pool only: give it a store"
	case said.Len() > 0:
		f.Verdict, f.Found = broken, strings.TrimSpace(said.String())
	default:
		f.Found, f.Mend = info.Endpoint+" takes and gives objects", ""
	}
	return f
}

// maxSkew is well below what S3's signatures allow.
const maxSkew = time.Minute

// checkSkew compares this clock with the store's.
func (p *preflight) checkSkew(ctx context.Context, c config.Store) finding {
	f := finding{Check: "clock of the store"}
	if !strings.HasPrefix(c.Endpoint, "http") {
		f.Found = "is this machine's"
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, farTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, c.Endpoint, nil)
	if err != nil {
		f.Verdict, f.Found = broken, err.Error()
		return f
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		f.Verdict, f.Found, f.Mend = doubt, err.Error(), "it was not compared: the store does not answer"
		return f
	}
	_ = answer.Body.Close() // the answer to HEAD has no body
	at, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		f.Found = "is not told"
		return f
	}
	off := p.sh.Now().Sub(at).Round(time.Second)
	f.Found = fmt.Sprintf("differs by %v", off.Abs())
	if off.Abs() > maxSkew {
		f.Verdict, f.Mend = broken, "run a time service at both: an S3 store refuses requests whose time is minutes off"
	}
	return f
}
