// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
)

// version is set when a release is built: -ldflags "-X main.version=v0.1.0".
var version string

func versionCommand(sh *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cli.Args(cobra.NoArgs),
		Example: "  weir version",
		RunE: func(*cobra.Command, []string) error {
			return sh.Say("weir %s (%s, %s/%s)\n", sh.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
}

// versionOf is the version of a release, else what the Go toolchain recorded about the build.
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
