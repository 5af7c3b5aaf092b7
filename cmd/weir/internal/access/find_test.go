// SPDX-License-Identifier: Apache-2.0

package access

import (
	"strings"
	"testing"

	"github.com/weir-storage/weir/federation"
)

func TestMissingHome(t *testing.T) {
	v := federation.Volume{Name: "data", Sites: []string{"ams", "fra"}}
	site := func(alive bool, gateways ...federation.Gateway) []federation.SiteStatus {
		return []federation.SiteStatus{{Site: federation.Site{Name: "ams", Gateways: gateways}, Alive: map[string]bool{"ams-1": alive}}}
	}
	g := federation.Gateway{Name: "ams-1"}
	for want, sites := range map[string][]federation.SiteStatus{
		"its first site ams is not registered any more: start a gateway there":      nil,
		"its first site ams has no gateway: start one there":                        site(false),
		"no gateway of its first site ams is alive (ams-1): start it":               site(false, g),
		"gateway ams-1 at its first site ams is alive and has not opened it: `weir": site(true, g),
	} {
		if got := MissingHome(v, sites); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
