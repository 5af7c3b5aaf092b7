// SPDX-License-Identifier: Apache-2.0

// Command weir is the one binary of Weir: the processes of a site, and what a person types to make
// volumes, to look after them and to move them.
//
// Below this package there is one package per group of commands, and in it one file per command:
// options, flags, run. The processes are gatewaycmd, operatorcmd and csicmd. They wire the packages
// of Weir together. All other groups are commands of people. Packages in internal serve both.
//
// Only cmd builds real clocks, timers, disks, networks and randomness: main builds those of all
// commands, and the run function of each process builds its own listeners, files and connections.
// Everything below cmd gets them as arguments.
package main

import (
	"context"
	"crypto/rand"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/admitcmd"
	"github.com/weir-storage/weir/cmd/weir/auditcmd"
	"github.com/weir-storage/weir/cmd/weir/cachecmd"
	"github.com/weir-storage/weir/cmd/weir/consolecmd"
	"github.com/weir-storage/weir/cmd/weir/csicmd"
	"github.com/weir-storage/weir/cmd/weir/dfcmd"
	"github.com/weir-storage/weir/cmd/weir/exchangecmd"
	"github.com/weir-storage/weir/cmd/weir/federationcmd"
	"github.com/weir-storage/weir/cmd/weir/fsckcmd"
	"github.com/weir-storage/weir/cmd/weir/gatewaycmd"
	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/machine"
	"github.com/weir-storage/weir/cmd/weir/operatorcmd"
	"github.com/weir-storage/weir/cmd/weir/pkicmd"
	"github.com/weir-storage/weir/cmd/weir/preflightcmd"
	"github.com/weir-storage/weir/cmd/weir/rebuildcmd"
	"github.com/weir-storage/weir/cmd/weir/registrycmd"
	"github.com/weir-storage/weir/cmd/weir/setupcmd"
	"github.com/weir-storage/weir/cmd/weir/sitecmd"
	"github.com/weir-storage/weir/cmd/weir/statuscmd"
	"github.com/weir-storage/weir/cmd/weir/storecmd"
	"github.com/weir-storage/weir/cmd/weir/supportcmd"
	"github.com/weir-storage/weir/cmd/weir/topcmd"
	"github.com/weir-storage/weir/cmd/weir/volumecmd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	sh := &cli.Shell{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Version: versionOf(),
		Program: cli.ProgramName(os.Args[0]),
		Now:     time.Now, Boottime: machine.Boottime, Pause: machine.Pause,
		Random: machine.Random(rand.Reader, time.Now, machine.Boottime),
	}
	connect := func(n access.Connection) (*access.Client, error) { return access.Connect(n, sh.Now) }
	code := sh.Run(ctx, root(sh, connect), os.Args[1:])
	stop()
	os.Exit(code)
}

// root is the command above all others.
func root(sh *cli.Shell, connect access.Connector) *cobra.Command {
	return sh.Root(&cobra.Command{
		Use:   "weir",
		Short: "Volumes that live at several sites at once",
		Long:  "weir runs the processes of a site, and makes, shows and moves volumes that live at several sites at once.",
	}, commands(sh, connect)...)
}

// commands are those of people that need the federation, then all others.
func commands(sh *cli.Shell, connect access.Connector) []*cobra.Command {
	return []*cobra.Command{
		volumecmd.Command(sh, connect, admitcmd.Command, admitcmd.ExpelCommand, rebuildcmd.Command),
		sitecmd.Command(sh, connect),
		federationcmd.Command(sh, connect),
		exchangecmd.Command(sh, connect),
		auditcmd.Command(sh, connect),
		registrycmd.Command(sh, connect),
		statuscmd.Command(sh, connect),
		statuscmd.FailoverCommand(sh, connect),
		topcmd.Command(sh, connect),
		cachecmd.Command(sh, connect),
		cachecmd.WarmCommand(sh, connect),
		dfcmd.Command(sh, connect),
		fsckcmd.Command(sh, connect),
		supportcmd.Command(sh, connect),
		preflightcmd.Command(sh, connect),
		pkicmd.Command(sh),
		setupcmd.Command(sh),
		gatewaycmd.Command(sh),
		operatorcmd.Command(sh),
		csicmd.Command(sh),
		storecmd.Command(sh),
		consolecmd.Command(sh),
		versionCommand(sh),
	}
}
