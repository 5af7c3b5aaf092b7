// SPDX-License-Identifier: Apache-2.0

// Package volumecmd has `weir volume`: make, list and delete volumes, and say who may use and own
// them.
package volumecmd

import (
	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
)

// Command is `weir volume`. more are its commands that other packages have.
func Command(sh *cli.Shell, connect access.Connector, more ...func(*cli.Shell, *access.Opener) *cobra.Command) *cobra.Command {
	o := access.NewOpener(sh.Getenv, connect)
	c := cli.Group(&cobra.Command{Use: "volume", Short: "Make, list and delete volumes, and say who may use and own them"},
		createCommand(sh, o), listCommand(sh, o), deleteCommand(sh, o), undeleteCommand(sh, o), purgeCommand(sh, o),
		transferCommand(sh, o), keysCommand(sh, o), clientsCommand(sh, o), storesCommand(sh, o), snapshotCommand(sh, o),
		rollbackCommand(sh, o), trashCommand(sh, o), upkeepCommand(sh, o))
	for _, command := range more {
		c.AddCommand(command(sh, o))
	}
	o.Flags(c)
	return c
}

// updateTries is how often a command changes a volume's record again after somebody else changed
// it.
const updateTries = 5
