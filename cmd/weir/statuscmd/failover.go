// SPDX-License-Identifier: Apache-2.0

package statuscmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// FailoverCommand is `weir failover`.
func FailoverCommand(sh *cli.Shell, connect access.Connector) *cobra.Command {
	var to string
	var accept bool
	var limit time.Duration
	opener := access.NewOpener(sh.Getenv, connect)
	c := &cobra.Command{
		Use: "failover VOLUME", Short: "Move a volume's home to another site", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Moves a volume's home. A home that is alive hands over, without loss. When it is lost, another copy\n" +
			"takes over. What only the home had is then lost, and the command needs --accept-loss for that.",
		Example: "  weir failover data --to fra",
		RunE: func(c *cobra.Command, a []string) error {
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			v, err := look(c.Context(), cl, a[0], sh.Now())
			if err != nil {
				return err
			}
			p, err := planFailover(v, to, accept)
			if err != nil {
				return err
			}
			if p.done != "" {
				return sh.Say("%s\n", p.done)
			}
			sh.Tell("%s\n", p.intent())
			start := sh.Now()
			r, err := askFailover(c.Context(), cl, p, limit)
			if err != nil {
				return err
			}
			return sh.Say("volume %s: home is %s, epoch %d, after %.1f s\n",
				p.volume, cli.With(r.GetHome(), p.targetSite), r.GetEpoch(), sh.Now().Sub(start).Seconds())
		},
	}
	opener.Flags(c)
	c.Flags().StringVar(&to, "to", "", "`SITE` (or gateway) that is to be home, by default that of the most advanced copy")
	c.Flags().BoolVar(&accept, "accept-loss", false, "give up what only the lost home has")
	c.Flags().DurationVar(&limit, "timeout", time.Minute, "`TIME` to wait for the new home")
	return c
}

// askFailover asks the gateway that the plan names. An error is in the gateway's own words.
func askFailover(ctx context.Context, cl *access.Client, p failover, limit time.Duration) (*forwardpb.FailoverReply, error) {
	q := &forwardpb.FailoverRequest{Volume: p.uuid, To: p.target, AcceptLoss: p.acceptLoss}
	if p.acceptLoss && p.ask == p.target {
		var err error
		if q.Word, err = cl.Say(p.takeover); err != nil {
			return nil, err
		}
	}
	var reply *forwardpb.FailoverReply
	err := cl.Call(ctx, limit, p.site, p.gateway, func(ctx context.Context, f forwardpb.ForwardClient) error {
		var err error
		reply, err = f.Failover(ctx, q)
		return err
	})
	return reply, err
}
