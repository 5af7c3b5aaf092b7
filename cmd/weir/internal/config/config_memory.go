// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/weir-storage/weir/federation"

// A gateway's memory has four parts. Three have bounds of their own: the decrypted blocks (Cache),
// the metadata that were read last (half as much as Cache), and what clients have and ask for
// (ClientMemory). The rest, three eighths by default, is for what is under way, for the databases'
// newest changes, and for garbage that is not collected yet.
const (
	defaultMemory = 512 << 20
	// leastClientMemory lets a client have several requests of the largest size under way.
	leastClientMemory = 32 << 20
)

// bounded is what the parts with bounds of their own may take together.
func (c *Config) bounded() federation.Bytes { return c.Cache + c.Cache/2 + c.ClientMemory }

// setMemory fills in what is not set of Memory, Cache and ClientMemory. A Memory that is not set
// follows from the others. A Cache or ClientMemory that is not set is a quarter of it.
func (c *Config) setMemory() {
	whole := c.Memory
	if whole == 0 {
		whole = defaultMemory
	}
	if c.Cache == 0 {
		c.Cache = whole / 4
	}
	if c.ClientMemory == 0 {
		c.ClientMemory = max(whole/4, leastClientMemory)
	}
	if c.Memory == 0 {
		c.Memory = max(whole, c.bounded()/5*8)
	}
}

// checkMemory checks that the parts leave room for the rest. Call setMemory first.
func (c *Config) checkMemory(p *Problems) {
	if c.Cache < 0 {
		p.Add("cache", c.Cache, "negative: write how much memory the cache may take, such as 128Mi")
	}
	if c.ClientMemory < leastClientMemory {
		p.Add("clientMemory", c.ClientMemory, "too little for requests of one megabyte: write 32Mi or more, such as 128Mi")
	}
	if most := c.Memory / 4 * 3; c.Memory < 0 || c.bounded() > most {
		p.Add("memory", c.Memory, "too little: one and a half times cache (%v), and clientMemory (%v), may take three quarters of it: "+
			"write %v or more, or less for the others", c.Cache, c.ClientMemory, c.bounded()/3*4+1)
	}
}
