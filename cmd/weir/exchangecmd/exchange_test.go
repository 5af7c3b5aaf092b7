// SPDX-License-Identifier: Apache-2.0

package exchangecmd

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/federation/paper"
)

func tree(sh *cli.Shell, connect access.Connector) []*cobra.Command {
	return []*cobra.Command{Command(sh, connect)}
}

// desk is two organizations' commands.
type desk struct {
	*clitest.Bench
	t *testing.T
}

// says runs a command as somebody of an organization.
func (d desk) says(organization, text string, args ...string) string {
	d.t.Helper()
	d.Self.Organization = organization
	return d.Want(cli.ExitOK, text, "", append([]string{"exchange"}, args...)...)
}

func (d desk) fails(organization string, code int, text string, args ...string) {
	d.t.Helper()
	d.Self.Organization = organization
	d.Want(code, text, "", append([]string{"exchange"}, args...)...)
}

var idForm = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)

func offered(t *testing.T) desk {
	d := desk{clitest.New(t, tree), t}
	d.says("SURF", "There are no such offers.", "find")
	d.says("SURF", "There are no agreements.", "status")
	d.says("SURF", "100Ti of store at site ams are offered as disks", "offer", "disks", "--site", "ams", "--amount", "100Ti",
		"--automatic", "1Ti", "--price", "free\nuntil 2028", "--media", "HDD", "--class", "Standard", "--to", "DFN,PSNC")
	return d
}

func TestLifeOfAnAgreement(t *testing.T) {
	d := offered(t)
	d.says("SURF", "offer disks is so already", "offer", "disks", "--site", "ams", "--amount", "100Ti",
		"--automatic", "1Ti", "--price", "free\nuntil 2028", "--media", "HDD", "--class", "Standard", "--to", "DFN,PSNC")
	out := d.says("DFN", "OFFER", "find", "--kind", "Store", "--amount", "10Ti")
	if !strings.Contains(strings.Join(strings.Fields(out), " "), "SURF/disks Store ams 100Ti 100Ti 1Ti 30 days HDD Standard free") {
		t.Error(out)
	}
	d.says("DFN", "There are no such offers.", "find", "--amount", "101Ti")
	d.says("KIT", "There are no such offers.", "find")
	id := idForm.FindString(d.says("DFN", "SURF accepts or declines it by 2026-06-03", "request", "SURF/disks", "--amount", "10Ti",
		"--until", "365d", "--purpose", "climate"))
	short := id[:6]
	out = d.says("SURF", short, "status")
	if !strings.Contains(strings.Join(strings.Fields(out), " "), "DFN host Store ams 10Ti Requested yours the host accepts or declines") {
		t.Error(out)
	}
	d.says("DFN", "Requested  SURF", "status")
	d.fails("DFN", cli.ExitError, `"SURF" accepts or declines, and not "DFN"`, "accept", short)
	d.says("SURF", "is accepted", "accept", short)
	d.says("SURF", "is accepted", "accept", short)
	d.says("SURF", "90Ti", "find", "--mine")
	d.fails("SURF", cli.ExitError, "give notice", "decline", short)
	d.says("SURF", "is active", "ready", short, "--endpoint", "https://store:7005")
	d.says("DFN", "Active", "status", short)
	var lines []AgreementLine
	if err := json.Unmarshal([]byte(d.says("DFN", "[", "status", "-o", "json")), &lines); err != nil || len(lines) != 1 ||
		lines[0].Phase != paper.Active || lines[0].Answer.Ready.Endpoint != "https://store:7005" {
		t.Errorf("%v: %+v", err, lines)
	}
	d.says("SURF", "Nothing was counted yet.", "usage")
	d.says("DFN", "gateway dfn-1 may fill 2Ti of agreement", "room", short, "dfn-1", "--amount", "2Ti")
	d.says("DFN", "gateway dfn-1 may fill 2Ti of agreement", "room", short, "dfn-1", "--amount", "2Ti")
	d.fails("DFN", cli.ExitError, "a gateway cannot fill 11Ti of it", "room", short, "dfn-1", "--amount", "11Ti")
	d.fails("SURF", cli.ExitError, `that is for "DFN" to say, its guest`, "room", short, "dfn-1", "--amount", "1Ti")
	d.fails("DFN", cli.ExitUsage, "a lent store knows gateways: give a gateway's certificate", "try", short)
	d.fails("DFN", cli.ExitUsage, "--amount is 1Gi: write from 1 byte to 64Mi", "try", short, "--amount", "1Gi")
	for _, u := range []paper.Usage{
		{By: "ams", Organization: "SURF",
			Of: map[string]paper.Counters{"b-0": {Puts: 5, In: 1 << 30, Stored: 1 << 30, ByteHours: 1 << 30}}},
		{By: "b-0", Organization: "DFN",
			Of: map[string]paper.Counters{"b-0": {Puts: 5, In: 1 << 30, Stored: 1 << 30, ByteHours: 1 << 29}}},
	} {
		u.ID, u.Guest, u.Host, u.At = id, "DFN", "SURF", d.Now
		if err := d.Registry.PutPapers(t.Context(), paper.At{Paper: paper.Paper{Usage: &u}}); err != nil {
			t.Fatal(err)
		}
	}
	d.says("SURF", "both sides disagree about byte-hours: the guest counted 536870912, the host 1073741824 (50.00 %)", "usage", short)
	d.says("SURF", ",Host,b-0,2026-05-04T10:00:00Z,1073741824,1073741824,5,1073741824,0,0,0,Store", "usage", "-o", "csv")
	d.says("SURF", `"differs": "byte-hours`, "usage", "-o", "json")
	d.fails("SURF", cli.ExitError, "the guest may have something there until 2027-05-11 10:00 UTC", "end", short, "--delete")
	d.says("SURF", "is Ending: the host gave notice (old disks)", "end", short, "--why", "old disks")
	d.fails("DFN", cli.ExitError, "there is nothing to confirm", "end", short, "--confirm")
	d.says("SURF", "offer disks is closed", "withdraw", "disks")
	d.fails("PSNC", cli.ExitError, `"SURF" has no open offer disks`, "request", "SURF/disks", "--amount", "1Ti", "--until", "90d")
	d.says("DFN", "is Drained", "end", short, "--drained")
	d.says("SURF", "is Drained: the host deletes everything", "end", short, "--delete")
	d.says("SURF", "the host deletes", "status", short)
}

// TestRoomAtGateways: of copies and cache room there is no store: nobody says where it is, gives
// gateways parts of it, or tries it; and what is counted is how much there is, and for how long.
func TestRoomAtGateways(t *testing.T) {
	for kind, offered := range map[paper.Kind]string{paper.KindCopy: "20Ti for copies at site ams are offered as room",
		paper.KindCache: "20Ti of cache at site ams are offered as room"} {
		t.Run(string(kind), func(t *testing.T) {
			d := desk{clitest.New(t, tree), t}
			d.says("SURF", offered, "offer", "room", "--site", "ams", "--amount", "20Ti", "--kind", string(kind))
			d.says("DFN", "SURF/room", "find", "--kind", string(kind))
			d.says("DFN", "There are no such offers.", "find", "--kind", "Store")
			id := idForm.FindString(d.says("DFN", "is asked for", "request", "SURF/room", "--amount", "10Ti", "--until", "365d"))
			d.says("SURF", "is accepted", "accept", id[:8])
			is := "kind is " + string(kind)
			d.fails("SURF", cli.ExitError, is+`, and endpoint is "https://store:7005": leave endpoint out, the room is at the gateways of `+
				"site ams", "ready", id[:8], "--endpoint", "https://store:7005")
			d.says("SURF", "is active", "ready", id[:8])
			d.says("DFN", "Active", "status", id[:8])
			d.fails("DFN", cli.ExitError, is+": its room is for all volumes together, and no gateway needs a part of it",
				"room", id[:8], "dfn-1", "--amount", "1Ti")
			d.fails("DFN", cli.ExitError, is+": there is no store to try, the room is at the gateways of site ams",
				"try", id[:8])
			for by, organization := range map[string]string{"ams-1": "SURF", "dfn": "DFN"} {
				u := paper.Usage{ID: id, Guest: "DFN", Host: "SURF", By: by, Organization: organization, At: d.Now,
					Of: map[string]paper.Counters{"ams": {Stored: 1 << 40, ByteHours: 1 << 41}}}
				if err := d.Registry.PutPapers(t.Context(), paper.At{Paper: paper.Paper{Usage: &u}}); err != nil {
					t.Fatal(err)
				}
			}
			var lines []string
			for l := range strings.Lines(d.says("DFN", "KIND", "usage", id[:8])) {
				lines = append(lines, strings.Join(strings.Fields(l), " "))
			}
			if want := id[:8] + " " + string(kind) + " Host all 1.0 TiB 2199023255552 2026-05-04"; lines[0] !=
				"ID KIND SIDE GATEWAY STORED BYTE-HOURS AT" || len(lines) != 3 || !strings.HasPrefix(lines[2], want) {
				t.Errorf("usage is %q, want %q", lines, want)
			}
			d.says("SURF", id+",Host,,2026-05-04T10:00:00Z,1099511627776,2199023255552,,,,,,"+string(kind), "usage", "-o", "csv")
			if out := d.says("SURF", `"kind": "`+string(kind)+`"`, "usage", "-o", "json"); strings.Contains(out, "gateway") {
				t.Errorf("it is of no gateway: %s", out)
			}
		})
	}
}

func TestOtherEnds(t *testing.T) {
	d := offered(t)
	ask := func() string {
		return idForm.FindString(d.says("DFN", "is asked for", "request", "SURF/disks", "--amount", "10Ti", "--until", "2027-01-01"))
	}
	id := ask()
	d.says("SURF", "is declined", "decline", id[:8], "--why", "too much")
	d.says("DFN", "the host declined (too much)", "status", "--all")
	id = ask()
	d.says("DFN", "the guest withdrew the request", "end", id[:8])
	d.fails("SURF", cli.ExitError, "is Declined: the guest withdrew the request", "accept", id[:8])
	id = ask()
	d.Now = d.Now.Add(31 * 24 * time.Hour)
	d.fails("SURF", cli.ExitError, "is Expired: the host did not answer", "accept", id[:8])
	id = ask()
	d.says("SURF", "is accepted", "accept", id[:8])
	d.fails("SURF", cli.ExitError, "kind is Store, and endpoint is missing: write the URL of the store", "ready", id[:8])
	d.says("SURF", "is active", "ready", id[:8], "--endpoint", "https://store:7005")
	d.says("SURF", "is Breached: the host says that it was not paid (invoice 7)", "end", id[:8], "--unpaid", "--why", "invoice 7")
	id = ask()
	d.says("SURF", "is accepted", "accept", id[:8])
	d.says("DFN", "is Breached: the guest says that the host is gone", "end", id[:8], "--host-gone")
	d.says("PSNC", "offer x is gone", "withdraw", "x")
}

// TestBadInput: what is refused names what was given, and says what to write.
func TestBadInput(t *testing.T) {
	d := offered(t)
	for _, x := range []struct {
		says string
		code int
		args []string
	}{
		{`--amount: "much" is not an amount of bytes`, cli.ExitUsage, []string{"offer", "x", "--site", "ams", "--amount", "much"}},
		{"amount is 0: offer more than nothing", cli.ExitError, []string{"offer", "x", "--site", "ams"}},
		{`site is ""`, cli.ExitError, []string{"offer", "x", "--amount", "1Ti"}},
		{`kind is "Tape": write one of`, cli.ExitError, []string{"offer", "x", "--site", "ams", "--amount", "1Ti", "--kind", "Tape"}},
		{`--until is "soon": write a day, such as 2027-12-31, or a time span`, cli.ExitUsage,
			[]string{"offer", "x", "--site", "ams", "--amount", "1Ti", "--until", "soon"}},
		{`--notice is "-3d": write a number of days`, cli.ExitUsage,
			[]string{"offer", "x", "--site", "ams", "--amount", "1Ti", "--notice", "-3d"}},
		{"an offer's kind and site do not change", cli.ExitError, []string{"offer", "disks", "--site", "fra", "--amount", "1Ti"}},
		{`--kind is "Tape": write one of`, cli.ExitUsage, []string{"find", "--kind", "Tape"}},
		{`"disks" names no offer: write ORGANIZATION/OFFER`, cli.ExitUsage,
			[]string{"request", "disks", "--amount", "1Ti", "--until", "9d"}},
		{`"SURF" has no open offer tapes`, cli.ExitError, []string{"request", "SURF/tapes", "--amount", "1Ti", "--until", "9d"}},
		{"no agreement has an ID that begins with", cli.ExitError, []string{"accept", "12345678"}},
		{"give at least 4 letters", cli.ExitError, []string{"accept", "12"}},
	} {
		d.fails("SURF", x.code, x.says, x.args...)
	}
	d.fails("SURF", cli.ExitError, "an offer is not for who makes it", "request", "SURF/disks", "--amount", "1Ti", "--until", "9d")
	d.fails("KIT", cli.ExitError, `the offer is for ["DFN" "PSNC"]: ask its host to name you`, "request", "SURF/disks", "--amount", "1Ti",
		"--until", "9d")
	d.fails("DFN", cli.ExitError, "the offer has 100Ti in all: ask for less", "request", "SURF/disks", "--amount", "101Ti", "--until", "9d")
	d.fails("DFN", cli.ExitError, "amount is 0: ask for more than nothing", "request", "SURF/disks", "--until", "9d")
	d.fails("DFN", cli.ExitError, "until is missing", "request", "SURF/disks", "--amount", "1Ti")
}
