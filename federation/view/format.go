// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"

	"github.com/weir-storage/weir/federation"
)

// Format returns the newest format level that all gateways know which may have something of a
// volume (engine/meta), those that are away included; 1 if the volume or a gateway is not known
// here.
func (v *View) Format(uuid string) uint32 {
	record, ok := v.Record(uuid)
	if !ok {
		return 1
	}
	level := ^uint32(0)
	var known []string
	for _, s := range v.Sites() {
		for _, g := range s.Gateways {
			known = append(known, g.Name)
			if v.MayHave(record, federation.Member{Gateway: g.Name, Site: s.Name, Incarnation: g.Incarnation}) {
				level = min(level, max(g.Format, 1))
			}
		}
	}
	if e := v.Volume(uuid); e != nil && e.Control != nil &&
		slices.ContainsFunc(e.Control.Members, func(m federation.Member) bool { return !slices.Contains(known, m.Gateway) }) {
		return 1
	}
	return max(level, 1)
}
