// SPDX-License-Identifier: Apache-2.0

// Package pkicmd has `weir pki`: make and show certificates.
package pkicmd

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
)

// authorityName is the name of the authority's files, without .crt and .key.
const authorityName = "ca"

// How long certificates are valid if nothing else is asked for.
const (
	AuthorityTime   = 10 * 365 * 24 * time.Hour
	CertificateTime = 365 * 24 * time.Hour
)

// Command is `weir pki`.
func Command(sh *cli.Shell) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use: "pki", Short: "Make and show certificates",
		Long: "Makes a federation's authority and certificates, as files: for trials and small federations.\n" +
			"Keep ca.key off the gateways.",
	}, initCommand(sh), issueCommand(sh), bundleCommand(sh), showCommand(sh))
}
