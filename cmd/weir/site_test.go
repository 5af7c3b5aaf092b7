// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/weir-storage/weir/federation"
)

// cluster registers the Kubernetes cluster that is a site.
func (b *bench) cluster(site, organization, uid string) {
	b.t.Helper()
	if err := b.registry.Register(b.t.Context(), federation.Site{Name: site, Organization: organization, Region: "eu", Cluster: uid}); err != nil {
		b.t.Fatal(err)
	}
}

// silent registers a site whose only gateway has no heartbeat.
func (b *bench) silent(name, organization string) {
	b.t.Helper()
	s := federation.Site{Name: name, Organization: organization, Capacity: 40 << 40, Gateways: []federation.Gateway{{Name: name + "-1", Addr: name + "-1:7400", Incarnation: "i"}}}
	if err := b.registry.Register(b.t.Context(), s); err != nil {
		b.t.Fatal(err)
	}
}

func TestSites(t *testing.T) {
	b := newBench(t)
	b.want(exitOK, "There are no sites", "", "site", "list")
	b.site("ams", "SURF")
	b.site("fra", "DFN")
	b.cluster("ams", "SURF", "uid-ams")
	b.silent("waw", "PSNC")
	b.want(exitOK, "created", manifest, "volume", "create", "-f", "-", "--wait", "0")
	out := b.want(exitOK, "NAME", "", "site", "list")
	for _, line := range []string{
		"ams SURF eu 1 of 1 1 - uid-ams alive",
		"fra DFN - 1 of 1 1 - - alive",
		"waw PSNC - 0 of 1 0 40Ti - no gateway is alive",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), line) {
			t.Errorf("%s\nlacks %s", out, line)
		}
	}
	b.want(exitOK, `"alive": [`, "", "site", "list", "-o", "json")

	b.want(exitError, "site ams: it is not lost: the registry hears of ams-1", "", "site", "lost", "ams", "--yes")
	b.want(exitError, `"x": there is no site of this name`, "", "site", "lost", "x", "--yes")
	b.want(exitError, `not confirmed ("no" was typed)`, "no\n", "site", "lost", "waw")
	b.want(exitOK, "site waw is declared lost", "waw\n", "site", "lost", "waw")
	lost, err := b.registry.ListLost(t.Context())
	if err != nil || len(lost) != 1 || lost[0].Site != "waw" || lost[0].By != "weir://demo/SURF/ams/operator" || !lost[0].At.Equal(storyTime) {
		t.Errorf("lost %+v, %v", lost, err)
	}
	b.want(exitOK, "site waw is declared lost since "+stamp(storyTime), "", "site", "lost", "waw")
	b.want(exitOK, "lost since "+stamp(storyTime), "", "site", "list")
	b.want(exitOK, "site waw is not lost any more", "", "site", "found", "waw")
	b.want(exitOK, "nothing to do", "", "site", "found", "waw")
}

func TestSiteRemove(t *testing.T) {
	b := newBench(t)
	b.site("ams", "SURF")
	b.silent("waw", "PSNC")
	b.cluster("waw", "PSNC", "uid-waw")
	ctx := t.Context()
	v := federation.Volume{UUID: "u1", Name: "team.data", Owner: "PSNC", OwnerSite: "waw", OwnerCluster: "uid-waw", Generation: 1, Sites: []string{"waw", "ams"}}
	rev, err := b.registry.CreateVolume(ctx, v)
	if err != nil {
		t.Fatal(err)
	}
	b.want(exitError, "site ams: it is not gone: the registry hears of ams-1", "", "site", "remove", "ams")
	b.want(exitError, "site waw: volumes have copies there: team.data", "", "site", "remove", "waw")
	v.Sites, v.Generation = []string{"ams"}, 2
	if rev, err = b.registry.UpdateVolume(ctx, rev, v); err != nil {
		t.Fatal(err)
	}
	member := federation.Member{Gateway: "waw-1", Site: "waw", Incarnation: "i"}
	at, err := b.registry.SwapControl(ctx, "u1", 0, federation.Control{Volume: "u1", Epoch: 1, Home: member, Members: []federation.Member{member}})
	if err != nil {
		t.Fatal(err)
	}
	b.want(exitError, "volumes have copies there: team.data", "", "site", "remove", "waw") // it is not gone from there yet
	if err := b.registry.DeleteControl(ctx, "u1", at); err != nil {
		t.Fatal(err)
	}
	b.want(exitError, "its cluster owns volumes: team.data: move them with `weir volume transfer` first", "", "site", "remove", "waw")
	v.OwnerSite, v.OwnerCluster = "", ""
	if _, err = b.registry.UpdateVolume(ctx, rev, v); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		b.registry.PutClaim(ctx, federation.Claim{Volume: "u1", Site: "waw", Namespace: "n", Name: "c", Kind: federation.ClaimGeoVolume, Access: federation.ReadOnly}),
		b.registry.PutClaim(ctx, federation.Claim{Volume: "u1", Site: "ams", Namespace: "n", Name: "c", Kind: federation.ClaimGeoVolume, Access: federation.ReadOnly}),
		b.registry.PutAttachment(ctx, federation.Attachment{Volume: "u1", Site: "waw", Node: "n1", Access: federation.ReadOnly}),
		b.registry.PutAdmission(ctx, federation.Admission{Volume: "u1", Site: "waw", Client: "10.0.0.1", Access: federation.ReadOnly}),
		b.registry.PutLost(ctx, federation.Lost{Site: "waw", By: "x", At: storyTime}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	b.want(exitOK, "site waw is forgotten; its name is free", "", "site", "remove", "waw")
	claims, _ := b.registry.ListClaims(ctx, "")
	attachments, _ := b.registry.ListAttachments(ctx, "")
	admissions, _ := b.registry.ListAdmissions(ctx, "")
	lost, _ := b.registry.ListLost(ctx)
	if len(claims) != 1 || claims[0].Site != "ams" || len(attachments)+len(admissions)+len(lost) != 0 {
		t.Errorf("left are %v %v %v %v", claims, attachments, admissions, lost)
	}
	b.want(exitError, "there is no site of this name", "", "site", "remove", "waw")
	b.cluster("waw", "DFN", "uid-other")
}

func TestVolumeTransfer(t *testing.T) {
	b := newBench(t)
	b.site("ams", "SURF")
	b.site("fra", "DFN")
	b.silent("waw", "PSNC")
	b.cluster("ams", "SURF", "uid-ams")
	b.cluster("waw", "PSNC", "uid-waw")
	v := federation.Volume{UUID: "u1", Name: "team.data", Owner: "SURF", Generation: 1, Sites: []string{"ams"}}
	if _, err := b.registry.CreateVolume(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	owner := func(organization, site, cluster string) {
		t.Helper()
		v, _, err := b.registry.FindVolume(t.Context(), "team.data")
		if err != nil || v.Owner != organization || v.OwnerSite != site || v.OwnerCluster != cluster {
			t.Errorf("owner %s, site %s, cluster %s, %v", v.Owner, v.OwnerSite, v.OwnerCluster, err)
		}
	}
	b.want(exitUsage, "no --to", "", "volume", "transfer", "team.data")
	b.want(exitError, "no Kubernetes cluster is that site", "", "volume", "transfer", "team.data", "--to", "fra")
	b.want(exitError, "no site owns it, so none can be lost", "", "volume", "transfer", "team.data", "--to", "ams", "--force")
	b.want(exitOK, "volume team.data: owner is SURF (ams), was SURF", "", "volume", "transfer", "team.data", "--to", "ams")
	owner("SURF", "ams", "uid-ams")
	b.want(exitOK, "owns it already", "", "volume", "transfer", "team.data", "--to", "ams")
	b.want(exitOK, "SURF (ams)", "", "volume", "list")

	b.want(exitOK, "owner is PSNC (waw), was SURF (ams)", "", "volume", "transfer", "team.data", "--to", "waw")
	owner("PSNC", "waw", "uid-waw")
	b.want(exitError, "it belongs to PSNC, and your certificate is of SURF", "", "volume", "transfer", "team.data", "--to", "ams")
	b.want(exitError, "was not declared lost", "", "volume", "transfer", "team.data", "--to", "ams", "--force")
	b.want(exitOK, "declared lost", "", "site", "lost", "waw", "--yes")
	b.want(exitError, "it belongs to PSNC", "", "volume", "transfer", "team.data", "--to", "ams")
	b.want(exitOK, "owner is SURF (ams), was PSNC (waw)", "", "volume", "transfer", "team.data", "--to", "ams", "--force")
	owner("SURF", "ams", "uid-ams")

	b.serve(nil)
	// The other commands take a name with its namespace too.
	b.want(exitOK, "mount -t nfs4 -o vers=4.2 10.0.0.1:/team.data MOUNTPOINT", "", "volume", "admit", "team.data", "--site", "ams", "--client", "10.0.0.9")
	b.want(exitOK, "may not use volume team.data", "", "volume", "expel", "team.data", "--site", "ams", "--client", "10.0.0.9")
	b.want(exitOK, "team.data  Pending", "", "status", "team.data")
	b.want(exitError, "it belongs to the cluster of site ams", "team.data\n", "volume", "delete", "team.data")
	v, rev, err := b.registry.FindVolume(t.Context(), "team.data")
	if err != nil {
		t.Fatal(err)
	}
	v.Deleted, v.DeletedAt = true, storyTime // as its operator does
	if _, err := b.registry.UpdateVolume(t.Context(), rev, v); err != nil {
		t.Fatal(err)
	}
	b.want(exitError, "it was deleted at", "", "volume", "transfer", "team.data", "--to", "waw")
}
