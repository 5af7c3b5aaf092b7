// SPDX-License-Identifier: Apache-2.0

package volumecmd

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
)

func TestVolumeStores(t *testing.T) {
	b := clitest.New(t, tree)
	b.Site("ams", "SURF")
	b.Now = time.Now()
	now := b.Now.UTC().Truncate(time.Second)
	agree := func(id, guest, host string, ready bool, terms ...func(*paper.Terms)) {
		t.Helper()
		r := paper.Request{Terms: paper.Terms{ID: id, Guest: guest, Host: host, Offer: "disks", Kind: paper.KindStore, Site: "ein",
			Amount: 1 << 40, Until: now.Add(time.Hour), AnswerBy: now.Add(time.Minute)}, Made: paper.Moment{At: now, By: "x"}}
		for _, change := range terms {
			change(&r.Terms)
		}
		a := paper.Answer{ID: id, Guest: guest, Host: host, Accepted: &paper.Acceptance{Moment: paper.Moment{At: now, By: "y"},
			Terms: r.Digest()}}
		if ready {
			a.Ready = &paper.Place{Endpoint: "https://store"}
		}
		if err := b.Registry.PutPapers(t.Context(), paper.At{Paper: paper.Paper{Request: &r}},
			paper.At{Paper: paper.Paper{Answer: &a}}); err != nil {
			t.Fatal(err)
		}
	}
	id := func(n string) string { return n + "4c1e-7a0b-4a42-9a2e-0000000000aa" }
	agree(id("0001"), "SURF", "TUE", true)
	agree(id("0002"), "TUE", "SURF", true)
	agree(id("0003"), "SURF", "TUE", false)
	agree(id("0004"), "SURF", "TUE", true, func(r *paper.Terms) { r.Notice = 7200e9 }) // its end is near
	for _, v := range []federation.Volume{{UUID: "u1", Name: "data", Owner: "SURF", Generation: 1, Sites: []string{"ams"}},
		{UUID: "u2", Name: "team.data", Owner: "SURF", Generation: 1, Sites: []string{"ams"}, OwnerSite: "ams", OwnerCluster: "c"}} {
		if _, err := b.Registry.CreateVolume(t.Context(), v, federation.Keyring{}); err != nil {
			t.Fatal(err)
		}
	}
	b.Want(cli.ExitUsage, "name the agreements", "", "volume", "stores", "data")
	b.Want(cli.ExitUsage, "or give --none", "", "volume", "stores", "data", "00014c1e", "--none")
	b.Want(cli.ExitError, "no agreement has an ID that begins with", "", "volume", "stores", "data", "ffffffff")
	b.Want(cli.ExitError, `"TUE" borrows by it, and not "SURF"`, "", "volume", "stores", "data", "00024c1e")
	b.Want(cli.ExitError, "is Agreed, and takes nothing: the host makes the room", "", "volume", "stores", "data", "00034c1e")
	b.Want(cli.ExitError, "is Ending: ", "", "volume", "stores", "data", "00044c1e")
	b.Want(cli.ExitUsage, "is named twice", "", "volume", "stores", "data", "00014c1e", "00014c1")
	b.Want(cli.ExitError, "write replication.stores into its policy there", "", "volume", "stores", "team.data", "00014c1e")
	b.Want(cli.ExitOK, "is in stores of TUE at site ein", "", "volume", "stores", "data", "00014c1e")
	b.Want(cli.ExitOK, "is in these stores already", "", "volume", "stores", "data",
		"00014c1e")
	if v, _, err := b.Registry.GetVolume(t.Context(), "u1"); err != nil || !slices.Equal(v.Stores, []string{id("0001")}) ||
		v.Generation != 2 {
		t.Errorf("%+v, %v", v, err)
	}
	b.Want(cli.ExitOK, "is in no lent store any more", "", "volume", "stores", "data", "--none")
}
