// SPDX-License-Identifier: Apache-2.0

package gatewaycmd

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/config"
)

// sealedKeyCommand is `weir gateway sealed-key`.
func sealedKeyCommand(sh *cli.Shell) *cobra.Command {
	var path string
	c := &cobra.Command{
		Use: "sealed-key --config FILE", Short: "Print the site's key as a KMS plugin sealed it", Args: cli.Args(cobra.NoArgs),
		Long: "Prints the file of the site's key, for a backup, if a KMS plugin sealed it (keys.kms in the\n" +
			"gateway's configuration). It opens nothing without the plugin's keys. A file that is not sealed is\n" +
			"not printed.",
		Example: "  weir gateway sealed-key --config /etc/weir/weir.yaml >ams-site.key.sealed",
		RunE: func(*cobra.Command, []string) error {
			if path == "" {
				return cli.Usage("gateway sealed-key: no --config: give the path of the gateway's configuration file")
			}
			c, err := config.Read(path)
			if err != nil {
				return err
			}
			return printSealed(sh.Out, c.SiteKey)
		},
	}
	c.Flags().StringVar(&path, "config", sh.Getenv("WEIR_CONFIG"), "configuration `FILE` [WEIR_CONFIG]")
	return c
}

func printSealed(w io.Writer, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("siteKey: %w", err)
	}
	if !isSealed(text) {
		return fmt.Errorf("siteKey: file %s: no KMS plugin has sealed it: it is the key itself, and is not printed; copy the file to "+
			"where it is safe", path)
	}
	_, err = w.Write(text)
	return err
}
