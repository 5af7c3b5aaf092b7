// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
)

// Wrong usage ends with code 2 and says what is wrong. Failure ends with code 1.
func TestExitCodes(t *testing.T) {
	b := clitest.New(t, commands)
	for _, c := range []struct {
		code int
		text string
		args []string
	}{
		{cli.ExitOK, "Available Commands", nil},
		{cli.ExitOK, "Available Commands", []string{"volume"}},
		{cli.ExitOK, "weir ", []string{"version"}},
		{cli.ExitUsage, `weir: there is no command "fly"`, []string{"fly"}},
		{cli.ExitUsage, `weir volume: there is no command "fly"`, []string{"volume", "fly"}},
		{cli.ExitUsage, "unknown flag: --fly", []string{"status", "--fly"}},
		{cli.ExitUsage, "write `weir volume delete NAME", []string{"volume", "delete"}},
		{cli.ExitUsage, "write `weir failover VOLUME", []string{"failover"}},
		{cli.ExitUsage, `-o "yaml": write json`, []string{"status", "-o", "yaml"}},
		{cli.ExitUsage, "no -f", []string{"volume", "create"}},
		{cli.ExitUsage, "no --config", []string{"gateway"}},
		{cli.ExitUsage, "no --federation", []string{"pki", "init"}},
		{cli.ExitUsage, "no --site", []string{"pki", "issue", "--organization", "SURF", "--gateway", "g"}},
		{cli.ExitError, "read configuration: ", []string{"gateway", "--config", "/nonexistent/weir.yaml"}},
		{cli.ExitError, "there is no volume of this name", []string{"status", "data"}},
	} {
		b.Want(c.code, c.text, "", c.args...)
	}
}

// Each help text is at most 100 columns wide, and each command that is no group shows an example.
func TestHelp(t *testing.T) {
	b := clitest.New(t, commands)
	var visit func(c *cobra.Command, path ...string)
	visit = func(c *cobra.Command, path ...string) {
		text := b.Want(cli.ExitOK, "Usage:", "", append(slices.Clone(path), "--help")...)
		for line := range strings.Lines(text) {
			if line = strings.TrimRight(line, "\n"); utf8.RuneCountInString(line) > 100 {
				t.Errorf("weir %s --help: more than 100 columns: %s", strings.Join(path, " "), line)
			}
		}
		if !c.HasSubCommands() && !strings.Contains(c.Example, "  weir "+strings.Join(path, " ")) {
			t.Errorf("weir %s: no example", strings.Join(path, " "))
		}
		for _, below := range c.Commands() {
			visit(below, append(slices.Clone(path), below.Name())...)
		}
	}
	visit(root(&cli.Shell{Getenv: os.Getenv}, nil))
}
