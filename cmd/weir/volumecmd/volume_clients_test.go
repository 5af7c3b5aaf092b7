// SPDX-License-Identifier: Apache-2.0

package volumecmd

import (
	"reflect"
	"testing"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/users"
)

func TestVolumeClients(t *testing.T) {
	b := clitest.New(t, tree)
	b.Site("ams", "SURF")
	b.Site("fra", "DFN")
	for _, v := range []federation.Volume{{UUID: "u1", Name: "data", Owner: "SURF", Generation: 1, Sites: []string{"ams"}},
		{UUID: "u2", Name: "lab.pvc", Owner: "SURF", OwnerSite: "ams", OwnerCluster: "c", Generation: 1, Sites: []string{"ams"},
			Grants: []federation.Grant{{Site: "fra", Namespace: "x", Access: federation.ReadOnly}}}} {
		if _, err := b.Registry.CreateVolume(t.Context(), v, federation.Keyring{}); err != nil {
			t.Fatal(err)
		}
	}
	has := func(everywhere users.Policy, at map[string]users.Policy, generation uint64) {
		t.Helper()
		v, _, err := b.Registry.FindVolume(t.Context(), "data")
		if err != nil || !reflect.DeepEqual(v.Spec.Clients, everywhere) || !reflect.DeepEqual(v.Clients, at) || v.Generation != generation {
			t.Errorf("the record has %+v, %+v, generation %d, %v", v.Spec.Clients, v.Clients, v.Generation, err)
		}
	}
	clients := func(want int, says string, args ...string) {
		t.Helper()
		b.Want(want, says, "", append([]string{"volume", "clients"}, args...)...)
	}
	clients(cli.ExitUsage, `--uids "x:1": write CLIENT:VOLUME`, "data", "--uids", "x:1")
	clients(cli.ExitUsage, `--gids "1": write CLIENT:VOLUME`, "data", "--gids", "1")
	clients(cli.ExitUsage, "squash: Some: not known", "data", "--squash", "Some", "--mask", "700")
	clients(cli.ExitUsage, "nobody becomes root", "data", "--uids", "0:0")
	clients(cli.ExitUsage, "--forget goes with --site", "data", "--forget")
	clients(cli.ExitUsage, "--forget goes with --site", "data", "--forget", "--site", "fra", "--squash", "Root")
	clients(cli.ExitError, "nowhere", "data", "--site", "nowhere", "--squash", "Root")
	clients(cli.ExitError, "write clients into its GeoVolume there", "lab.pvc", "--squash", "Root")
	clients(cli.ExitError, "write clients into that grant", "lab.pvc", "--squash", "Root", "--site", "fra")
	clients(cli.ExitError, "no privileged ports", "lab.pvc", "--site", "ams", "--privileged-ports")
	clients(cli.ExitOK, "certificate", "lab.pvc", "--site", "ams", "--certificates", "Required")
	clients(cli.ExitOK, "root is nobody", "lab.pvc", "--site", "ams", "--squash", "Root")
	clients(cli.ExitUsage, "nobody does not become root", "data", "--anonymous-uid", "0")
	clients(cli.ExitUsage, "65534 among them, who is nobody", "data", "--uids", "0:60000:10000")
	clients(cli.ExitError, "none", "none", "--squash", "Root")
	has(users.Policy{}, nil, 1)

	clients(cli.ExitOK, "at all sites of which nothing else is said: root is nobody; nobody is 65534:99", "data", "--squash", "Root",
		"--anonymous-gid", "99")
	root := users.Policy{Squash: users.SquashRoot, AnonymousGID: 99}
	has(root, nil, 2)
	clients(cli.ExitOK, "at site fra: 2 ranges of users and 1 of groups, and others are nobody; nobody is 65534:65534; "+
		"without permissions 007; from ports below 1024 only", "data", "--site", "fra", "--uids", "1000:20000:100,5:6",
		"--gids", "1000:20000", "--mask", "007", "--privileged-ports")
	fra := users.Policy{UIDs: []users.Range{{Client: 1000, Volume: 20000, Count: 100}, {Client: 5, Volume: 6}},
		GIDs: []users.Range{{Client: 1000, Volume: 20000}}, Mask: "007", Ports: users.PortsPrivileged}
	has(root, map[string]users.Policy{"fra": fra}, 2)
	clients(cli.ExitOK, "at site fra: everybody is who he says he is", "data", "--site", "fra")
	has(root, map[string]users.Policy{"fra": {}}, 2)
	clients(cli.ExitOK, "at site fra: root is nobody", "data", "--site", "fra", "--forget")
	clients(cli.ExitOK, "at site nowhere: root is nobody", "data", "--site", "nowhere", "--forget")
	has(root, nil, 2)
	clients(cli.ExitOK, "everybody is nobody; nobody is 7:65534", "data", "--squash", "All", "--anonymous-uid", "7")
	clients(cli.ExitOK, "everybody is who he says he is", "data")
	has(users.Policy{}, nil, 4)
}
