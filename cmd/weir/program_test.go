// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
)

// The same program under both of its names: what it says must be what a person can type.
func TestProgramName(t *testing.T) {
	for arg0, name := range map[string]string{
		"": "weir", "./bin/weir": "weir",
		"kubectl-weir": "kubectl weir", "/usr/local/bin/kubectl-weir": "kubectl weir",
	} {
		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"help"}, "Usage:\n  " + name + " ["},
			{[]string{"status", "--help"}, "Usage:\n  " + name + " status"},
			{[]string{"volume", "delete"}, name + ": " + name + " volume delete: "},
			{[]string{"fly"}, name + `: there is no command "fly"` + "\nSee `" + name + " help`.\n"},
			{[]string{"completion", "bash"}, "bash completion"},
			{[]string{"completion", "zsh"}, "#compdef weir"},
			{[]string{"completion", "fish"}, "fish completion"},
		} {
			var said bytes.Buffer
			sh := &cli.Shell{In: strings.NewReader(""), Out: &said, Err: &said, Program: cli.ProgramName(arg0),
				Getenv: func(string) string { return "" }}
			sh.Run(t.Context(), root(sh, nil), c.args)
			if !strings.Contains(said.String(), c.want) {
				t.Errorf("%q %q says %q, want %q in it", arg0, c.args, said.String(), c.want)
			}
		}
	}
}
