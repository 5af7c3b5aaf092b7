// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Link says what happens to packets on their way into a site. Packets that leave the site are
// subject to the link of the site they go to. So the round trip between two sites is the sum of
// their delays: 10 ms at both is 20 ms.
type Link struct {
	Delay time.Duration // added to each packet
	Loss  float64       // share of packets lost, 0 to 1
	Rate  uint64        // bits per second; 0: unlimited
}

// netem is the link as arguments of tc's netem, "" for a link that does nothing.
func (l Link) netem() (string, error) {
	if l.Delay < 0 || l.Loss < 0 || l.Loss > 1 {
		return "", fmt.Errorf("link %+v: delay must not be negative and loss must be 0 to 1", l)
	}
	if l == (Link{}) {
		return "", nil
	}
	// limit is the queue in packets, which includes all packets under way. Without a rate their
	// number is unknown, so the limit is generous. With a rate it is what the delay and 200 ms of
	// standing queue amount to, plus about one large frame, as in routers.
	limit := uint64(100000)
	if l.Rate > 0 {
		limit = 32 + l.Rate/8*uint64(l.Delay.Milliseconds()+200)/1000/1500
	}
	args := fmt.Sprintf("limit %d delay %dus", limit, l.Delay.Microseconds())
	if l.Loss > 0 {
		args += fmt.Sprintf(" loss %.4f%%", l.Loss*100)
	}
	if l.Rate > 0 {
		args += fmt.Sprintf(" rate %dbit", l.Rate)
	}
	return args, nil
}

// SetLink changes the link of a site, replacing what was set before; the zero Link is a perfect
// one. Packets under way may be lost.
func (s *Stage) SetLink(ctx context.Context, site string, link Link) error {
	at, err := s.site(site)
	if err != nil {
		return fmt.Errorf("set link: %w", err)
	}
	args, err := link.netem()
	if err != nil {
		return fmt.Errorf("set link of site %s: %w", site, err)
	}
	dev := s.router.dev(at.index)
	script := fmt.Sprintf("tc qdisc del dev %s root 2>/dev/null || :", dev)
	if args != "" {
		script = fmt.Sprintf("tc qdisc replace dev %s root netem %s", dev, args)
	}
	if err := s.router.run(ctx, script); err != nil {
		return fmt.Errorf("set link of site %s: %w", site, err)
	}
	return nil
}

// Cut takes a site off the wide-area network: packets in both directions are dropped silently.
// Traffic within the site continues.
func (s *Stage) Cut(ctx context.Context, site string) error { return s.setPort(ctx, site, "down") }

// Heal undoes Cut.
func (s *Stage) Heal(ctx context.Context, site string) error { return s.setPort(ctx, site, "up") }

func (s *Stage) setPort(ctx context.Context, site, state string) error {
	at, err := s.site(site)
	if err == nil {
		err = ipBatch(ctx, at.ns, "link set wan0 "+state)
	}
	if err != nil {
		return fmt.Errorf("set link of site %s %s: %w", site, state, err)
	}
	return nil
}

// CutPath drops packets from one site to another. The way back, and all other sites, are not
// affected.
func (s *Stage) CutPath(ctx context.Context, from, to string) error {
	return s.setPath(ctx, from, to, "ip rule del %s 2>/dev/null; ip rule add %[1]s")
}

// HealPath undoes CutPath.
func (s *Stage) HealPath(ctx context.Context, from, to string) error {
	return s.setPath(ctx, from, to, "ip rule del %s 2>/dev/null || :")
}

// CutPair drops packets between two sites in both directions. Both still reach all other sites.
func (s *Stage) CutPair(ctx context.Context, a, b string) error {
	if err := s.CutPath(ctx, a, b); err != nil {
		return err
	}
	return s.CutPath(ctx, b, a)
}

// HealPair undoes CutPair.
func (s *Stage) HealPair(ctx context.Context, a, b string) error {
	if err := s.HealPath(ctx, a, b); err != nil {
		return err
	}
	return s.HealPath(ctx, b, a)
}

func (s *Stage) setPath(ctx context.Context, from, to, script string) error {
	a, err := s.site(from)
	if err != nil {
		return fmt.Errorf("set path: %w", err)
	}
	b, err := s.site(to)
	if err != nil {
		return fmt.Errorf("set path: %w", err)
	}
	rule := fmt.Sprintf("iif %s to %s blackhole pref %d", s.router.dev(a.index), siteNet(b.index), 100+a.index*16+b.index)
	if err := s.router.run(ctx, fmt.Sprintf(script, rule)); err != nil {
		return fmt.Errorf("set path from site %s to %s: %w", from, to, err)
	}
	return nil
}

// LinkBytes counts the bytes that entered (rx) and left (tx) a site over its link since Up,
// link-layer headers included. A frame that the kernel has not segmented yet counts its headers
// once.
func (s *Stage) LinkBytes(ctx context.Context, site string) (rx, tx uint64, err error) {
	at, err := s.site(site)
	if err != nil {
		return 0, 0, fmt.Errorf("read link counters: %w", err)
	}
	out, err := run(ctx, "", "ip", "-n", at.ns, "-s", "-j", "link", "show", "dev", "wan0")
	if err != nil {
		return 0, 0, fmt.Errorf("read link counters of site %s: %w", site, err)
	}
	var links []struct {
		Stats64 struct {
			Rx, Tx struct{ Bytes uint64 }
		}
	}
	if err := json.Unmarshal([]byte(out), &links); err != nil || len(links) != 1 {
		return 0, 0, fmt.Errorf("read link counters of site %s: unexpected answer of ip: %q: %w", site, out, err)
	}
	return links[0].Stats64.Rx.Bytes, links[0].Stats64.Tx.Bytes, nil
}
