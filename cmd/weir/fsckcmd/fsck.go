// SPDX-License-Identifier: Apache-2.0

// Package fsckcmd has `weir fsck`: it checks a volume, at the gateways that have copies, or without
// any gateway from a pool or a store (ADR 49).
package fsckcmd

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/gateway/checking"
)

// The exit codes are those of fsck(8). Several at once are added up.
const (
	Corrected   = 1  // errors were found, and all of these are repaired
	Uncorrected = 4  // errors are left
	Operational = 8  // a copy could not be checked, or not to the end
	Usage       = 16 // the command line is wrong
	Canceled    = 32 // the person ended it
)

// options are the flags.
type options struct {
	data, repair, all, store        bool
	site, gateway, output           string
	pool, storeDir, keyring, folder string
}

// Result is what came of one copy: `weir fsck -o json` is a list of them.
type Result struct {
	Gateway string `json:"gateway,omitempty"`
	Site    string `json:"site,omitempty"`
	// Place is where the copy is that no gateway had open.
	Place string `json:"place,omitempty"`
	// Problem is why the copy was not checked, or not to the end. Absent: it is because the gateway
	// has no copy.
	Problem string           `json:"problem,omitempty"`
	Absent  bool             `json:"absent,omitempty"`
	Report  *checking.Report `json:"report,omitempty"`
}

// code is the exit code of one copy.
func (r *Result) code() (code int) {
	if r.Report != nil && r.Report.Repaired() > 0 {
		code |= Corrected
	}
	if r.Report != nil && r.Report.Left() > 0 {
		code |= Uncorrected
	}
	if r.Problem != "" && !r.Absent {
		code |= Operational
	}
	return code
}

// Command is `weir fsck`.
func Command(sh *cli.Shell, connect access.Connector) *cobra.Command {
	var o options
	opener := access.NewOpener(sh.Getenv, connect)
	c := &cobra.Command{
		Use: "fsck VOLUME", Short: "Check a volume, and repair it from other copies",
		Long: "Checks a volume's copy: its metadata by every rule that they keep, and that each segment of its\n" +
			"log is where it is to be. With --data all is read, on the pool and in the site's store: hashed,\n" +
			"and opened with the volume's key. Damage is told as files, with the bytes that it is about.\n" +
			"Without --repair nothing changes. The volume stays in use meanwhile.\n\n" +
			"--repair fetches what is damaged from other copies, and has the home count again what is used.\n" +
			"It never guesses: what no copy has is listed, and stays an error for who reads it.\n\n" +
			"By default the volume's home checks its copy; --site, --gateway and --all choose others. Without\n" +
			"gateways, --pool checks the copy on the pool of a gateway that is stopped, and --store or\n" +
			"--store-dir what can be made from a store alone. Then --config is that gateway's file, and with\n" +
			"--keyring no registry is needed, and VOLUME is the volume's UUID. --pool with a store compares\n" +
			"the two; with --repair the pool is healed from the store, and the store from the pool.\n\n" +
			"The exit code is that of fsck(8), added up: 0 no errors, 1 errors were repaired, 4 errors are\n" +
			"left, 8 a copy could not be checked, 16 wrong usage, 32 ended by the user.",
		Example: "  weir fsck data\n  weir fsck data --data --all\n  weir fsck data --data --site ams --repair\n" +
			"  weir fsck data --config /etc/weir/gateway.yaml --pool /var/lib/weir/pool --store --data\n" +
			"  weir fsck 3f9c02d7-… --config gateway.yaml --keyring keyring.json --store-dir /mnt/bucket",
		Args: func(c *cobra.Command, a []string) error {
			return coded(c.Context(), cli.Args(cobra.ExactArgs(1))(c, a))
		},
		RunE: func(c *cobra.Command, a []string) error {
			code, err := run(c.Context(), sh, opener, a[0], o)
			if err = coded(c.Context(), err); err != nil {
				var own *cli.CodeError
				if errors.As(err, &own) {
					own.Code |= code
				}
				return err
			}
			if code != 0 {
				return &cli.CodeError{Code: code}
			}
			return nil
		},
	}
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return coded(c.Context(), &cli.UsageError{Err: err}) })
	opener.Flags(c)
	cli.OutputFlag(c, &o.output)
	f := c.Flags()
	f.BoolVar(&o.data, "data", false, "read all data too, on the pool and in the store")
	f.BoolVar(&o.repair, "repair", false, "repair from other copies")
	f.BoolVar(&o.all, "all", false, "check all copies, one after the other")
	f.StringVar(&o.site, "site", "", "check the copy at the site of this `NAME`")
	f.StringVar(&o.gateway, "gateway", "", "check the copy of the gateway of this `NAME`")
	f.StringVar(&o.pool, "pool", "", "check the copy in this pool `DIRECTORY`, whose gateway is stopped")
	f.BoolVar(&o.store, "store", false, "use the store of --config, without a gateway")
	f.StringVar(&o.storeDir, "store-dir", "", "the same with a `DIRECTORY` that is the store")
	f.StringVar(&o.keyring, "keyring", "", "`FILE` with the volume's keyring as the registry has it, in JSON")
	f.StringVar(&o.folder, "work", "", "`DIRECTORY` for metadata that are made from a store; by default that of temporary files")
	return c
}

// coded gives an error its exit code.
func coded(ctx context.Context, err error) error {
	var wrong *cli.UsageError
	var own *cli.CodeError
	switch {
	case err == nil || errors.As(err, &own):
		return err
	case errors.As(err, &wrong):
		return &cli.CodeError{Code: Usage, Err: err}
	case ctx != nil && ctx.Err() != nil:
		return &cli.CodeError{Code: Canceled, Err: errors.New("fsck: ended before the check was complete; what was repaired stays so")}
	}
	return &cli.CodeError{Code: Operational, Err: err}
}

// run checks what the flags say. The code is that of all copies.
func run(ctx context.Context, sh *cli.Shell, opener *access.Opener, name string, o options) (code int, err error) {
	if err := cli.CheckOutput(o.output); err != nil {
		return 0, err
	}
	offline := o.pool != "" || o.store || o.storeDir != ""
	chosen := o.all || o.gateway != "" || o.site != ""
	switch {
	case offline && chosen:
		return 0, cli.Usage("fsck: --all, --site and --gateway ask gateways, and --pool, --store and --store-dir check without any: " +
			"give one kind")
	case !offline && (o.keyring != "" || o.folder != ""):
		return 0, cli.Usage("fsck: --keyring and --work are for a check without gateways: give --pool, --store or --store-dir too")
	case o.all && (o.gateway != "" || o.site != ""), o.gateway != "" && o.site != "":
		return 0, cli.Usage("fsck: give one of --all, --site and --gateway")
	case o.store && o.storeDir != "":
		return 0, cli.Usage("fsck: give one of --store and --store-dir")
	case o.repair && o.pool == "" && offline:
		return 0, cli.Usage("fsck: a store alone has nothing to be repaired from: `weir volume rebuild` makes the volume from it, " +
			"as far as it goes")
	}
	show := newProgress(sh, cmp.Or(o.pool, o.storeDir))
	var all []Result
	if offline {
		var r Result
		r, err = without(ctx, sh, opener, name, o, show)
		if err != nil && r.Report != nil && ctx.Err() == nil { // what was found until then counts
			r.Problem, err = err.Error(), nil
		}
		all = append(all, r)
	} else {
		all, err = online(ctx, sh, opener, name, o, show)
	}
	show.end()
	for i := range all {
		code |= all[i].code()
	}
	if err != nil {
		return code, err
	}
	if ctx.Err() != nil {
		return code, ctx.Err()
	}
	if o.output == "json" {
		return code, cli.WriteJSON(sh.Out, all)
	}
	return code, write(sh, name, all)
}
