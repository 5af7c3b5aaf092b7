// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by a release's build: -ldflags "-X main.version=v0.1.0".
var version string

func (sh *shell) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			return sh.say("weir %s (%s, %s/%s)\n", versionOf(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
}

func versionOf() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "development"
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v += " " + s.Value
			}
		}
	}
	return v
}
