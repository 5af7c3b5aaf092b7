// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Host parts of addresses in a site's /24, and the link-layer addresses that go with them.
const (
	routerHost = 1  // the router's end
	firstHost  = 2  // processes of the site: 2 to 9
	lastHost   = 9  //
	firstGuest = 10 // guests: 10 to 41
	lastGuest  = 41 //
)

func siteAddr(site, host int) string { return fmt.Sprintf("10.77.%d.%d", site, host) }
func siteNet(site int) string        { return fmt.Sprintf("10.77.%d.0/24", site) }

// siteMAC is the link-layer address of a host. All addresses of a site's processes are on one
// bridge, so they share one link-layer address.
func siteMAC(site, host int) string {
	if host > firstHost && host <= lastHost {
		host = firstHost
	}
	return fmt.Sprintf("02:57:00:00:%02x:%02x", site, host)
}

// run executes a command of the host and returns its output. The error holds what the command said.
func run(ctx context.Context, stdin string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(errOut.String())
		if said == "" {
			said = strings.TrimSpace(out.String())
		}
		return out.String(), fmt.Errorf("run %s %s: %w: %s", name, strings.Join(args, " "), err, said)
	}
	return out.String(), nil
}

// ipBatch runs lines of ip commands, in namespace ns unless it is empty. The first failing line
// ends it.
func ipBatch(ctx context.Context, ns string, lines ...string) error {
	var args []string
	if ns != "" {
		args = append(args, "-n", ns)
	}
	_, err := run(ctx, strings.Join(lines, "\n")+"\n", "ip", append(args, "-batch", "-")...)
	return err
}
