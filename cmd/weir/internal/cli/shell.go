// SPDX-License-Identifier: Apache-2.0

// Package cli has what all of weir's commands share: the surroundings that a command gets from
// main, exit codes, wrong usage, and the forms of the output.
//
//   - The exit code is 0 when the work was done, 1 when it failed, 2 when the command was typed
//     wrongly.
//   - Results go to the standard output, everything else goes to the standard error.
//   - JSON output is a documented struct. Later versions only add fields to it.
package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	ExitOK    = 0
	ExitError = 1
	ExitUsage = 2
)

// Shell is what a command gets from outside. Package main builds the real one, tests build others.
type Shell struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	Version  string // of this program
	Program  string // what a person types to run it; empty: weir

	Now func() time.Time
	// Boottime is the clock of promises: it never goes back, and it counts suspend (protocol-4).
	Boottime func() time.Duration
	// Pause waits for a time. It returns false when ctx ended first.
	Pause  func(ctx context.Context, d time.Duration) bool
	Random io.Reader // cryptographic
}

// Run executes one command line and returns its exit code.
func (sh *Shell) Run(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var wrong *UsageError
	var own *CodeError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &own):
		if own.Err != nil {
			sh.Tell("%s: %v\n", sh.program(), own.Err)
		}
		return own.Code
	case errors.As(err, &wrong):
		sh.Tell("%s: %v\nSee `%[1]s help`.\n", sh.program(), err)
		return ExitUsage
	}
	sh.Tell("%s: %v\n", sh.program(), err)
	return ExitError
}

// program is what a person types to run the program.
func (sh *Shell) program() string {
	if sh.Program == "" {
		return "weir"
	}
	return sh.Program
}

// Root makes root the command above all commands: it reads and writes through sh.
func (sh *Shell) Root(root *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	root.SilenceErrors, root.SilenceUsage = true, true                                     // Run prints errors
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: sh.program()} // usage texts say it
	Group(root, commands...)
	root.SetIn(sh.In)
	root.SetOut(sh.Out)
	root.SetErr(sh.Err)
	wrapped := strings.NewReplacer("Flags.FlagUsages", "Flags.FlagUsagesWrapped 100")
	root.SetUsageTemplate(wrapped.Replace(root.UsageTemplate()))
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &UsageError{err} })
	return root
}

// Tell writes to the standard error. An error of that write has nowhere to go and is ignored.
func (sh *Shell) Tell(format string, a ...any) { _, _ = fmt.Fprintf(sh.Err, format, a...) }

// Say writes a result to the standard output.
func (sh *Shell) Say(format string, a ...any) error {
	_, err := fmt.Fprintf(sh.Out, format, a...)
	return err
}

// Confirm reads a line and returns an error unless the person typed name. what names the command.
func (sh *Shell) Confirm(what, name string) error {
	line, err := bufio.NewReader(sh.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: read the answer: %w", what, err)
	}
	if got := strings.TrimSpace(line); got != name {
		return fmt.Errorf("%s: not confirmed (%q was typed): nothing was changed; type the name, or give --yes", what, got)
	}
	return nil
}

// UsageError is the error of a command that was typed wrongly. It leads to ExitUsage.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

func (e *UsageError) Unwrap() error { return e.Err }

// Usage makes a UsageError.
func Usage(format string, a ...any) error { return &UsageError{fmt.Errorf(format, a...)} }

// Group makes c a command that does nothing but hold the commands below it.
func Group(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return Usage("%s: there is no command %q", c.CommandPath(), args[0])
		}
		return c.Help()
	}
	c.Args = cobra.ArbitraryArgs
	c.AddCommand(commands...)
	return c
}

// Args turns the error of a check of arguments into a UsageError.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, a []string) error {
		if err := check(c, a); err != nil {
			return Usage("%s: %w: write `%s`", c.CommandPath(), err, c.UseLine())
		}
		return nil
	}
}

// CodeError ends the program with an exit code that the command has of its own, such as those of
// fsck(8). Err is what to say; nil: all is said.
type CodeError struct {
	Code int
	Err  error
}

func (e *CodeError) Error() string { return fmt.Sprintf("exit code %d: %v", e.Code, e.Err) }

// Unwrap returns Err.
func (e *CodeError) Unwrap() error { return e.Err }
