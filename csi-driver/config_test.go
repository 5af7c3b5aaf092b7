// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"strings"
	"testing"

	"github.com/weir-storage/weir/csi-driver/controller"
	"github.com/weir-storage/weir/csi-driver/node"
)

func TestConfigurations(t *testing.T) {
	w := newWorld(t)
	for field, change := range map[string]func(*controller.Config){
		"cluster": func(c *controller.Config) { c.Cluster = "prod" }, "federation": func(c *controller.Config) { c.Federation = "" },
		"site": func(c *controller.Config) { c.Site = "" }, "client": func(c *controller.Config) { c.Client = nil },
	} {
		cfg := controllerConfig(w)
		change(&cfg)
		if _, err := controller.NewServer(cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("controller without %s: %v", field, err)
		}
	}
	for field, change := range map[string]func(*node.Config){
		"cluster": func(c *node.Config) { c.Cluster = "" }, "nodeUID": func(c *node.Config) { c.NodeUID = "" },
		"nconnect": func(c *node.Config) { c.NConnect = 17 }, "clock": func(c *node.Config) { c.After = nil },
	} {
		cfg := nodeConfig(w, &table{})
		change(&cfg)
		if _, err := node.NewServer(cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("node with a wrong %s: %v", field, err)
		}
	}
}
