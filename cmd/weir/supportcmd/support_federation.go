// SPDX-License-Identifier: Apache-2.0

package supportcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/statuscmd"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// gatewayTime is how long one gateway may take for its files.
const gatewayTime = 30 * time.Second

// maxFiles bounds what one gateway may send, in bytes.
const maxFiles = 256 << 20

// federationPart adds what the registry and the gateways know. Keyrings stay out.
func federationPart(ctx context.Context, b *bundle, cl *access.Client, now time.Time) {
	asked := func(name string, v any, err error) {
		if err == nil {
			var text bytes.Buffer
			if err = cli.WriteJSON(&text, v); err == nil {
				b.put(name, text.Bytes())
				return
			}
		}
		b.say("%s is missing: %v", name, err)
	}
	r, err := statuscmd.Look(ctx, cl, now)
	asked("status.json", r, err)
	sites, err := cl.Registry.Sites(ctx)
	asked("registry/sites.json", sites, err)
	volumes, verr := cl.Registry.ListVolumes(ctx)
	asked("registry/volumes.json", volumes, verr)
	controls, observed := map[string]federation.Control{}, map[string][]federation.Observed{}
	var lacks []error
	for _, v := range volumes {
		c, _, err := cl.Registry.GetControl(ctx, v.Volume.UUID)
		if err == nil {
			controls[v.Volume.UUID] = c
		} else if !errors.Is(err, federation.ErrNotFound) {
			lacks = append(lacks, err)
		}
		if observed[v.Volume.UUID], err = cl.Registry.ListObserved(ctx, v.Volume.UUID); err != nil {
			lacks = append(lacks, err)
		}
	}
	asked("registry/controls.json", controls, nil)
	asked("registry/observed.json", observed, nil)
	if len(lacks) > 0 {
		b.say("registry/controls.json and registry/observed.json lack %d records: %v", len(lacks), lacks[0])
	}
	claims, err := cl.Registry.ListClaims(ctx, "")
	asked("registry/claims.json", claims, err)
	lost, err := cl.Registry.ListLost(ctx)
	asked("registry/lost.json", lost, err)
	purges, err := cl.Registry.ListPurges(ctx)
	asked("registry/purges.json", purges, err)
	notices, err := cl.Registry.Notices(ctx)
	asked("registry/notices.json", notices, err)
	head, err := cl.Registry.Head(ctx)
	asked("registry/head.json", head, err)
	for _, s := range sites {
		name := s.Site.Name
		admissions, err := cl.Registry.ListAdmissions(ctx, name)
		asked("registry/admissions/"+name+".json", admissions, err)
		attachments, err := cl.Registry.ListAttachments(ctx, name)
		asked("registry/attachments/"+name+".json", attachments, err)
	}
	gateways(ctx, b, cl, sites)
}

// told is what a gateway sent.
type told struct {
	files []*forwardpb.DiagnosePart // whole ones
	err   error
}

// gateways adds the files of all gateways, which are asked at once.
func gateways(ctx context.Context, b *bundle, cl *access.Client, sites []federation.SiteStatus) {
	var work sync.WaitGroup
	var names []string
	all := map[string]*told{}
	for _, s := range sites {
		for _, g := range s.Site.Gateways {
			t := new(told)
			names = append(names, g.Name)
			all[g.Name] = t
			work.Go(func() {
				t.err = cl.Call(ctx, gatewayTime, s.Site, g, func(ctx context.Context, f forwardpb.ForwardClient) error {
					return t.receive(ctx, f)
				})
			})
		}
	}
	work.Wait()
	for _, name := range names {
		for _, f := range all[name].files {
			b.put("gateways/"+name+"/"+f.GetName(), f.GetData())
		}
		if err := all[name].err; err != nil {
			b.say("gateways/%s is missing, or a part of it: %v", name, err)
		}
	}
}

// receive reads a gateway's files. A gateway may be of another version, and wrong.
func (t *told) receive(ctx context.Context, f forwardpb.ForwardClient) error {
	from, err := f.Diagnose(ctx, &forwardpb.DiagnoseRequest{})
	if err != nil {
		return err
	}
	size := 0
	for {
		part, err := from.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := part.GetName()
		if name == "" || path.Base(name) != name || strings.HasPrefix(name, ".") {
			return fmt.Errorf("it sends a file named %q", name)
		}
		if size += len(part.GetData()); size > maxFiles {
			return fmt.Errorf("it sends more than %d bytes", maxFiles)
		}
		if n := len(t.files); n > 0 && t.files[n-1].GetName() == name {
			t.files[n-1].Data = append(t.files[n-1].Data, part.GetData()...)
		} else {
			t.files = append(t.files, part)
		}
	}
}
