// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"time"

	"github.com/weir-storage/weir/federation"
)

// The rules for copies without a key (protocol-28). A blind member that takes over is a steward: it
// begins an epoch, and hands it on.

// vouched reports whether p may become a member as far as the key is concerned (protocol-17). A
// blind copy has none to prove. A steward cannot check a proof, and goes by the sites that the
// volume's owner named.
func (c *Core) vouched(p *peer) bool {
	return p.proved || c.cfg.Blind || slices.Contains(c.policy.Blind, p.member.Site)
}

// isBlind reports whether a gateway's copy is blind, as far as is known: the policy says so, or the
// gateway itself, which may be behind or ahead of the policy here.
func (c *Core) isBlind(gateway string) bool {
	p := c.peers[gateway]
	return p != nil && (p.blind || slices.Contains(c.policy.Blind, p.member.Site))
}

// move makes the home hand over to another gateway. A blind copy does not become home.
func (c *Core) move(to string) {
	if c.leading() && !c.isBlind(to) {
		c.moving, c.moveEnd = to, max(c.now, c.quietEnd)+2*c.cfg.Promise
	}
}

// handOn makes a steward hand over to the keyed copy that the policy prefers, of those that are
// members or have nearly all. A copy that is to go, at a site of Policy.Heirs, is better than none:
// it has the key, and hands over in its turn. Until there is one, the steward waits.
func (c *Core) handOn() {
	if !c.cfg.Blind || c.role != Home || c.moving != "" || c.swap != nil {
		return
	}
	c.move(c.best(slices.Concat(c.policy.Sites, c.policy.Heirs), func(p *peer) bool {
		return !c.isBlind(p.member.Gateway) && (c.couldJoin(p) || c.ctl.IsMember(p.member) && c.live(p) && !c.stuck(p))
	}))
}

// inherits reports whether this steward hands on to p.
func (c *Core) inherits(p *peer) bool {
	return c.cfg.Blind && p.member.Gateway == c.moving && slices.Contains(c.policy.Heirs, p.member.Site)
}

// yields is how much longer than its promise a blind member waits before it takes over: until a
// keyed member, which can serve at once, had the time to.
func (c *Core) yields() time.Duration {
	keyed := func(m federation.Member) bool {
		return m != c.cfg.Self && m != c.ctl.Home && !slices.Contains(c.policy.Blind, m.Site)
	}
	if !c.cfg.Blind || !slices.ContainsFunc(c.ctl.Members, keyed) {
		return 0
	}
	return c.cfg.Promise
}
