// SPDX-License-Identifier: Apache-2.0

package moving

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/report"
)

// believe makes this gateway home with what is left of its log, which is in doubt. A person must
// accept the loss, and no copy on which the control record counts may be whole.
func (m *Mover) believe(ctx context.Context, v federation.Volume, acceptLoss bool) (*forwardpb.FailoverReply, error) {
	refuse := func(format string, a ...any) (*forwardpb.FailoverReply, error) {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s: %s", v.Name, fmt.Sprintf(format, a...))
	}
	if err := m.cfg.Registry.Trusted(); err != nil {
		return refuse("%v", err)
	}
	ctl, _, err := m.cfg.Registry.GetControl(ctx, v.UUID)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "volume %s: read its control record: %v", v.Name, err)
	}
	for _, x := range ctl.Members {
		if x.Gateway == m.cfg.Self.Gateway || !m.cfg.View.IsAlive(x.Gateway, x.Incarnation) {
			continue
		}
		switch said, err := m.ask(ctx, v.UUID, x.Gateway); {
		case err != nil:
			return refuse("member %s at site %s may have a whole copy, and does not answer: %v", x.Gateway, x.Site, err)
		case !said.Doubt:
			return refuse("member %s at site %s has a copy that is not in doubt: it goes on with that by itself; see `weir status %s`",
				x.Gateway, x.Site, v.Name)
		}
	}
	why := m.cfg.Copies.Doubt(v.UUID)
	if !acceptLoss {
		return refuse("%v. With --accept-loss it goes on with what is left; keep a copy of its folder on the pool before, "+
			"if somebody may want to look at it", why)
	}
	m.cfg.Logger.Warn("a log in doubt is believed by a person's word", "volume", v.Name, "why", why)
	m.cfg.Copies.Believe(v.UUID)
	ctx, cancel := context.WithTimeout(ctx, 20*m.cfg.Promise)
	defer cancel()
	var c *copies.Copy
	for c == nil || c.Replica.Status().Control == nil {
		select {
		case <-m.cfg.Timers.After(50 * time.Millisecond):
		case <-ctx.Done():
			state, _ := m.cfg.Copies.State(v.UUID)
			return refuse("its copy at gateway %s is not open in time: %v", m.cfg.Self.Gateway, state.Problem)
		}
		c = m.cfg.Copies.Copy(v.UUID)
	}
	c.Replica.Force()
	return m.await(ctx, c, v.Name, m.cfg.Self.Gateway, ctl.Epoch)
}

// inDoubt reports whether a gateway says that its log of a volume lost something, so that it does
// not open it.
func (m *Mover) inDoubt(ctx context.Context, volume, gateway string) bool {
	said, err := m.ask(ctx, volume, gateway)
	return err == nil && said.Doubt
}

// ask returns what a gateway says of a volume.
func (m *Mover) ask(ctx context.Context, volume, gateway string) (said report.VolumeStatus, err error) {
	client, err := m.cfg.Peers.Forward(gateway)
	if err != nil {
		return said, err
	}
	reply, err := client.Status(ctx, &forwardpb.StatusRequest{Volume: volume})
	if err != nil {
		return said, err
	}
	var all []report.VolumeStatus
	if err := json.Unmarshal(reply.GetJson(), &all); err != nil {
		return said, fmt.Errorf("read what gateway %s says: %w", gateway, err)
	}
	if len(all) != 1 {
		return said, fmt.Errorf("gateway %s does not know volume %s", gateway, volume)
	}
	return all[0], nil
}
