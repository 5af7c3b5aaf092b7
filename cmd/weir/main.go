// SPDX-License-Identifier: Apache-2.0

// Command weir is the one binary of Weir: the gateway of a site, and what a person types to make volumes, look after
// them and move them.
//
// Rules of this package:
//
//   - It is the only place that builds real clocks, disks and clients; everything below gets them from here (habit 10).
//   - One file per command: options, flags, run. What a command decides is a function without I/O, tested as such.
//   - The exit code is 0 when it was done, 1 when it failed, 2 when it was asked wrongly. Results go to the standard
//     output, and all else to the standard error.
//   - JSON output is a documented struct (Report, VolumeLine); its fields are only ever added to.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// usageError is a command that was typed wrongly.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usage(format string, a ...any) error { return &usageError{fmt.Errorf(format, a...)} }

// shell is what commands get from outside.
type shell struct {
	arg0     string // the program's name as it was started
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	now      func() time.Time
	random   io.Reader // cryptographic
	// connect opens what a person's commands work with; the caller closes it.
	connect func(connection) (*client, error)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	sh := &shell{arg0: os.Args[0], in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv, now: time.Now, random: rand.Reader, connect: connect}
	code := sh.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// run executes one command line and returns its exit code.
func (sh *shell) run(ctx context.Context, args []string) int {
	root := sh.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var wrong *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &wrong):
		sh.tell("%s: %v\nSee `%[1]s help`.\n", sh.name(), err)
		return exitUsage
	}
	sh.tell("%s: %v\n", sh.name(), err)
	return exitError
}

// tell writes to the standard error; there is nobody to tell when that fails.
func (sh *shell) tell(format string, a ...any) { _, _ = fmt.Fprintf(sh.err, format, a...) }

// say writes a result.
func (sh *shell) say(format string, a ...any) error {
	_, err := fmt.Fprintf(sh.out, format, a...)
	return err
}

func (sh *shell) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "Volumes that live at several sites at once",
		Long:          "weir runs a site's gateway, and makes, shows and moves volumes that live at several sites at once.",
		SilenceErrors: true, SilenceUsage: true,
	}
	sh.called(root)
	group(root)
	root.SetIn(sh.in)
	root.SetOut(sh.out)
	root.SetErr(sh.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.AddCommand(sh.gatewayCommand(), sh.volumeCommand(), sh.siteCommand(), sh.statusCommand(), sh.failoverCommand(), sh.pkiCommand(), sh.operatorCommand(), sh.csiCommand(), sh.preflightCommand(), sh.setupCommand(), sh.versionCommand())
	return root
}

// group makes c a command that only has commands below it.
func group(c *cobra.Command) {
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("%s: there is no command %q", c.CommandPath(), args[0])
		}
		return c.Help()
	}
	c.Args = cobra.ArbitraryArgs
}

// args makes a check of arguments end as wrong usage.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, a []string) error {
		if err := check(c, a); err != nil {
			return usage("%s: %w: write `%s`", c.CommandPath(), err, c.UseLine())
		}
		return nil
	}
}
