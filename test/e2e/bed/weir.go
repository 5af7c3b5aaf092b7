// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Weir runs the weir program at a site, as an operator of that site's organization, and returns
// what it prints.
func (b *Bed) Weir(ctx context.Context, site string, args ...string) (string, error) {
	files := b.tls["admin-"+site]
	cmd := b.sites[site].Command(ctx, b.weir, args...)
	cmd.Env = append(cmd.Environ(), "WEIR_FEDERATION="+Federation, "WEIR_REGISTRY="+strings.Join(b.Etcd.Endpoints(), ","),
		"WEIR_CA="+files.CA, "WEIR_CERT="+files.Cert, "WEIR_KEY="+files.Key)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("weir %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// Create makes a volume from a manifest, with further flags of `weir volume create`. It waits for
// sites that are still starting.
func (b *Bed) Create(ctx context.Context, site, manifest string, more ...string) error {
	f, err := os.CreateTemp(b.Stage.Dir(), "volume-*.yaml")
	if err != nil {
		return err
	}
	if _, err := f.WriteString(manifest); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := b.AwaitSites(ctx); err != nil {
		return err
	}
	if _, err = b.Weir(ctx, site, append([]string{"volume", "create", "-f", filepath.Clean(f.Name())}, more...)...); err != nil {
		return err
	}
	var v struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	if err := yaml.Unmarshal([]byte(manifest), &v); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owners[v.Metadata.Name] = site
	return nil
}

// AwaitSites waits until every site's gateway answers.
func (b *Bed) AwaitSites(ctx context.Context) error {
	for {
		r, err := b.Report(ctx, b.cfg.Sites[0])
		alive := 0
		for _, g := range r.Gateways {
			if g.Alive && g.Answered {
				alive++
			}
		}
		if alive == len(b.cfg.Sites) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for gateways: %d of %d live: %w (%v)", alive, len(b.cfg.Sites), ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Admit lets a client address of a site use a volume, by a person of its owner.
func (b *Bed) Admit(ctx context.Context, volume, site, client string) error {
	b.mu.Lock()
	owner := b.owners[volume]
	b.mu.Unlock()
	_, err := b.Weir(ctx, cmp.Or(owner, site), "volume", "admit", volume, "--site", site, "--client", client)
	return err
}

// Status is a volume in the output of `weir status -o json`, with the fields that the tests need.
type Status struct {
	Name     string   `json:"name"`
	UUID     string   `json:"uuid"`
	State    string   `json:"state"`
	Message  string   `json:"message"`
	Home     string   `json:"home"`
	HomeSite string   `json:"homeSite"`
	Epoch    uint64   `json:"epoch"`
	Members  []string `json:"members"`
	Replicas []struct {
		Gateway    string   `json:"gateway"`
		Site       string   `json:"site"`
		State      string   `json:"state"`
		LagBytes   *int64   `json:"lagBytes"`
		LagSeconds *float64 `json:"lagSeconds"`
		Salvage    []string `json:"salvage"`
		Problem    string   `json:"problem"`
	} `json:"replicas"`
	Stores []struct {
		Agreement string `json:"agreement"`
		Whole     bool   `json:"whole"`
		Problem   string `json:"problem"`
	} `json:"stores"`
}

// Report is what `weir status -o json` prints.
type Report struct {
	Volumes  []Status `json:"volumes"`
	Gateways []struct {
		Name     string `json:"name"`
		Alive    bool   `json:"alive"`
		Answered bool   `json:"answered"`
	} `json:"gateways"`
}

// Report asks for the state of everything, from a site.
func (b *Bed) Report(ctx context.Context, site string, args ...string) (Report, error) {
	out, err := b.Weir(ctx, site, append(append([]string{"status"}, args...), "-o", "json")...)
	if err != nil {
		return Report{}, err
	}
	var r Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return Report{}, fmt.Errorf("read status: %w: %s", err, out)
	}
	return r, nil
}

// Status asks for a volume's state, from a site.
func (b *Bed) Status(ctx context.Context, site, volume string) (Status, error) {
	r, err := b.Report(ctx, site, volume)
	if err != nil {
		return Status{}, err
	}
	if len(r.Volumes) != 1 {
		return Status{}, fmt.Errorf("status of %s has %d volumes", volume, len(r.Volumes))
	}
	return r.Volumes[0], nil
}

// Await waits until the status, asked for at a site, satisfies ok.
func (b *Bed) Await(ctx context.Context, site, volume string, ok func(Status) bool) (Status, error) {
	for {
		call, cancel := context.WithTimeout(ctx, 10*time.Second)
		s, err := b.Status(call, site, volume)
		cancel()
		if err == nil && ok(s) {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return s, fmt.Errorf("wait for volume %s: %w; its state is %+v (%v)", volume, ctx.Err(), s, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Manifest is a volume's manifest. The volume has three copies, which may trail by at most 8 s, as
// may the stores.
func Manifest(name string, members int, home string) string {
	ack := "acknowledge: Gateway"
	if members > 1 {
		ack = fmt.Sprintf("acknowledge: Sites, sites: %d", members)
	}
	return fmt.Sprintf(`apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: %s}
spec:
  size: 20Gi
  replication: {copies: 3}
  durability: {%s, maxLag: {time: 8s}}
  home: {preferredSites: [%s]}
`, name, ack, home)
}
