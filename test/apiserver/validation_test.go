// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Each case is an object that a person might write, and what the API server answers. With change,
// object is made first, and the answer is to the change.
var refusals = []struct {
	name, object, change, says string
}{
	{"volume without a size", gv("spec: {}"), "",
		"size is missing: write how much the volume may hold, such as 10Gi; or name another site's volume in import"},
	{"volume of no size", gv("spec: {size: 0}"), "", "size must be more than 0"},
	{"volume of negative size", gv("spec: {size: -1Gi}"), "", "size must be more than 0"},
	{"volume shrinks", gv("spec: {size: 10Gi}"), gv("spec: {size: 9Gi}"), "a volume does not shrink"},
	{"volume's long name", strings.Replace(gv("spec: {size: 1Gi}"), "name: v", "name: "+strings.Repeat("v", 64), 1), "",
		"a GeoVolume's name is a DNS label"},
	{"volume's name with a dot", strings.Replace(gv("spec: {size: 1Gi}"), "name: v", "name: a.b", 1), "",
		"a GeoVolume's name is a DNS label"},
	{"volume becomes an import", gv("spec: {size: 1Gi}"), gv("spec: {import: {volume: x.y}}"),
		"a volume does not become an import, nor an import a volume"},
	{"import becomes a volume", gv("spec: {import: {volume: x.y}}"), gv("spec: {size: 1Gi}"),
		"a volume does not become an import, nor an import a volume"},
	{"import of another", gv("spec: {import: {volume: x.y}}"), gv("spec: {import: {volume: x.z}}"),
		"an import does not change to another volume"},
	{"import with a size", gv("spec: {size: 1Gi, import: {volume: x.y}}"), "", "size is the owner's to set"},
	{"import with a policy", gv("spec: {policy: safe, import: {volume: x.y}}"), "", "policy is the owner's to set"},
	{"import with copies", gv("spec: {replication: {copies: 3}, import: {volume: x.y}}"), "", "are the owner's to set"},
	{"import with durability", gv("spec: {durability: {acknowledge: Sites}, import: {volume: x.y}}"), "", "are the owner's to set"},
	{"import with a block size", gv("spec: {cache: {blockSize: 4Ki}, import: {volume: x.y}}"), "", "are the owner's to set"},
	{"import with grants", gv("spec: {grants: [{site: b, namespace: lab}], import: {volume: x.y}}"), "", "grants are the owner's to give"},
	{"import to be deleted", gv("spec: {reclaimPolicy: Delete, import: {volume: x.y}}"), "", "deleting an import never deletes the volume"},
	{"grant twice", gv("spec: {size: 1Gi, grants: [{site: b, namespace: lab}, {site: b, namespace: lab, access: ReadOnly}]}"), "",
		"the same site and namespace are granted twice"},
	{"import with clients", gv("spec: {clients: {squash: Root}, import: {volume: x.y}}"), "", "are the owner's to set"},
	{"grants to a site that differ", gv("spec: {size: 1Gi, grants: [{site: b, namespace: lab, clients: {squash: Root}}, " +
		"{site: b, namespace: lab2}]}"), "", "grants to one site say different things of clients"},
	{"everybody squashed, and users", gv("spec: {size: 1Gi, clients: {squash: All, uids: [{client: 1, volume: 2}]}}"), "",
		"squash: All leaves nobody for uids and gids"},
	{"user that becomes root", gv("spec: {size: 1Gi, clients: {uids: [{client: 1, volume: 0}]}}"), "",
		"spec.clients.uids[0].volume"},
	{"mask of owners", gv("spec: {size: 1Gi, clients: {mask: '700'}}"), "", "spec.clients.mask"},
	{"grant to no site", gv("spec: {size: 1Gi, grants: [{site: B_1, namespace: lab}]}"), "", "spec.grants[0].site"},
	{"unknown field", gv("spec: {size: 1Gi, copies: 3}"), "", `unknown field "spec.copies"`},
	{"unknown access", gv("spec: {size: 1Gi, access: Write}"), "", `supported values: "ReadWrite", "ReadOnly"`},
	{"more sites than copies", gv("spec: {size: 1Gi, durability: {acknowledge: Sites, sites: 3}}"), "",
		"durability.sites is more than replication.copies"},

	{"policy: more sites than copies", vp("replication: {copies: 2}, durability: {acknowledge: Sites, sites: 3}"), "",
		"durability.sites is more than replication.copies"},
	{"policy: sites without Sites", vp("durability: {sites: 2}"), "", "sites is only for acknowledge: Sites"},
	{"policy: Pair", vp("durability: {acknowledge: Pair}"), "", "acknowledge: Pair is not available yet"},
	{"policy: no copies", vp("replication: {copies: 0}"), "", "spec.replication.copies"},
	{"policy: more required than copies", vp("replication: {copies: 1, sites: {required: [a, b]}}"), "", "more sites.required than copies"},
	{"policy: required and forbidden", vp("replication: {sites: {required: [a], forbidden: [a]}}"), "",
		"a site is in both required and forbidden"},
	{"policy: preferred and forbidden", vp("replication: {sites: {preferred: [a], forbidden: [a]}}"), "",
		"a site is in both preferred and forbidden"},
	{"policy: unknown spread", vp("replication: {spread: Rack}"), "", `supported values: "Organization", "Region", "Site"`},
	{"policy: staleness of Strong", vp("consistency: {maxStaleness: 5s}"), "", "maxStaleness is only for mode: Bounded"},
	{"policy: lag of no time", vp("durability: {maxLag: {time: 0s}}"), "", "time must be more than 0"},
	{"policy: lag of no bytes", vp("durability: {maxLag: {bytes: 0}}"), "", "bytes must be more than 0"},
	{"policy: more reserve than size", vp("cache: {size: 1Gi, reserve: 2Gi}"), "", "reserve is more than size"},
	{"volume: more reserve than size", gv("spec: {size: 1Gi, cache: {size: 1Gi, reserve: 2Gi}}"), "", "reserve is more than size"},
	{"policy: little memory", vp("cache: {memory: 1Ki}"), "", "memory is less than 1Mi"},
	{"policy: far read-ahead", vp("cache: {readAhead: 65Mi}"), "", "readAhead is not from 0 to 64Mi"},
	{"policy: a pool of no labels", vp("cache: {pool: {matchLabels: {}}}"), "", "should have at least 1 properties"},
	{"policy: a pool by expression", vp("cache: {pool: {matchExpressions: []}}"), "", `unknown field "spec.cache.pool.matchExpressions"`},
	{"policy: too many snapshots", vp("snapshots: {schedule: [{every: Hourly, keep: 100}, {every: Daily, keep: 29}]}"), "",
		"more than 128 snapshots are kept in all"},
	{"policy: a schedule twice", vp("snapshots: {schedule: [{every: Hourly, keep: 1}, {every: Hourly, keep: 2}]}"), "", "Duplicate value"},
	{"policy: an unknown schedule", vp("snapshots: {schedule: [{every: Yearly, keep: 1}]}"), "", `Unsupported value: "Yearly"`},
	{"policy: no snapshot is kept", vp("snapshots: {schedule: [{every: Hourly, keep: 0}]}"), "", "spec.snapshots.schedule[0].keep"},
	{"policy: a long window", vp("snapshots: {window: 25h}"), "", "window is not from 0s to 24h"},
	{"policy: an unknown directory", vp("snapshots: {directory: Visible}"), "", `Unsupported value: "Visible"`},
	{"import with snapshots", gv("spec: {snapshots: {window: 1h}, import: {volume: x.y}}"), "", "are the owner's to set"},
	{"policy: a long trash", vp("trash: {keep: 8785h}"), "", "keep is not from 0s to 8784h"},
	{"import with a trash", gv("spec: {trash: {keep: 1h}, import: {volume: x.y}}"), "", "are the owner's to set"},
	{"policy: keys that follow each other", vp("encryption: {rotateEvery: 59m}"), "", "rotateEvery is not 0s, or from 1h to 87840h"},
	{"policy: a rotation below 0", vp("encryption: {rotation: -1}"), "", "spec.encryption.rotation"},
	{"policy: an unknown erasure", vp("encryption: {erase: Always}"), "", `Unsupported value: "Always"`},
	{"policy: an unknown sealing", vp("encryption: {reseal: Always}"), "", `Unsupported value: "Always"`},
	{"import with keys", gv("spec: {encryption: {rotation: 1}, import: {volume: x.y}}"), "", "are the owner's to set"},
	{"policy: no file", vp("quota: {files: 0}"), "", "spec.quota.files"},
	{"policy: too many files", vp("quota: {files: 4294967297}"), "", "spec.quota.files"},
	{"import with a quota", gv("spec: {quota: {files: 1}, import: {volume: x.y}}"), "", "are the owner's to set"},
	{"policy: scrubbed all the time", vp("scrub: {every: 59m}"), "", "every is not from 1h to 8784h"},
	{"policy: scrubbed slowly", vp("scrub: {rate: 1023Ki}"), "", "rate is not from 1Mi to 16Gi"},
	{"import with a scrub", gv("spec: {scrub: {every: 1h}, import: {volume: x.y}}"), "", "are the owner's to set"},
	{"policy: packed slowly", vp("compaction: {rate: 1Ki}"), "", "rate is not from 1Mi to 16Gi"},
	{"policy: no hours", vp("compaction: {hours: '22:00-24:00'}"), "", "spec.compaction.hours"},
	{"policy: hours of no length", vp("compaction: {hours: '22:00-22:00'}"), "", "begins and ends at the same time"},
	{"import with a compaction", gv("spec: {compaction: {rate: 1Mi}, import: {volume: x.y}}"), "", "are the owner's to set"},
	{"import with a source", gv("spec: {source: {volume: x}, import: {volume: x.y}}"), "", "an import begins with what the volume has"},
	{"source of two things", gv("spec: {size: 1Gi, source: {volume: v, snapshot: s}}"), "", "give either snapshot"},
	{"source of nothing", gv("spec: {size: 1Gi, source: {}}"), "", "give either snapshot"},
	{"source of another", gv("spec: {size: 1Gi, source: {volume: x}}"), gv("spec: {size: 1Gi, source: {volume: w}}"),
		"a volume keeps what it was made of"},
	{"source comes later", gv("spec: {size: 1Gi}"), gv("spec: {size: 1Gi, source: {volume: w}}"), "a volume keeps what it was made of"},
	{"source goes", gv("spec: {size: 1Gi, source: {snapshot: s}}"), gv("spec: {size: 1Gi}"), "a volume keeps what it was made of"},
	{"snapshot as a rollback names them", snapshot("before-rollback-1", ""), "", "and of rollbacks"},
	{"snapshot rolls back unnamed", snapshot("s", ""), snapshot("s", "rollback: now"), "rollback has to begin with the name of the source"},
	{"snapshot of another volume", snapshot("s", ""), strings.Replace(snapshot("s", ""), "name: v", "name: w", 1),
		"a snapshot is of one volume"},
	{"snapshot gets a name", snapshot("s", ""), snapshot("s", "snapshotName: t"), "a snapshot keeps its name"},
	{"snapshot gets another name", snapshot("s", "snapshotName: t"), snapshot("s", "snapshotName: u"), "a snapshot keeps its name"},
	{"snapshot as a schedule names them", snapshot("hourly-1", ""), "", "those of scheduled snapshots"},
	{"snapshot called as a schedule names them", snapshot("s", "snapshotName: daily-2026"), "", "those of scheduled snapshots"},
	{"snapshot with a long name", snapshot(strings.Repeat("s", 129), ""), "", "longer than 128 letters"},
	{"snapshot with a time for a name", snapshot("s", "snapshotName: '@1'"), "", "spec.snapshotName"},
	{"snapshot holds changes later", snapshot("s", ""), snapshot("s", "hold: true"), "whether changes are held is settled"},
	{"snapshot holds changes no more", snapshot("s", "hold: true"), snapshot("s", "hold: false"), "whether changes are held is settled"},
	{"snapshot taken without a hold", snapshot("s", ""), snapshot("s", "take: t"), "take is of a snapshot with hold only"},
	{"snapshot taken by nothing it says", snapshot("s", "hold: true, take: 'a b'"), "", "spec.take"},
	{"snapshot taken by another hold", snapshot("s", "hold: true, take: t"), snapshot("s", "hold: true, take: u"),
		"take can not be taken back"},
	{"snapshot taken by no hold any more", snapshot("s", "hold: true, take: t"), snapshot("s", "hold: true"),
		"take can not be taken back"},
	{"snapshot with hold and a long name", snapshot(strings.Repeat("s", 92), "hold: true"), "", "may have 91 letters"},
	{"snapshot with hold and a long snapshotName", snapshot("s", "hold: true, snapshotName: "+strings.Repeat("t", 92)), "",
		"may have 91 letters"},
	{"snapshot of a pod", strings.Replace(snapshot("s", ""), "name: v", "kind: Pod, name: v", 1), "", `Unsupported value: "Pod"`},

	{"policy: unknown prefetch", vp("cache: {prefetch: All}"), "", `Unsupported value: "All"`},
	{"policy: negative read-ahead", vp("cache: {readAhead: -1}"), "", "readAhead is not from 0 to 64Mi"},
	{"policy: odd blocks", vp("cache: {blockSize: 5Ki}"), "", "blockSize is no power of two from 4Ki to 64Ki"},
	{"policy: large blocks", vp("cache: {blockSize: 128Ki}"), "", "blockSize is no power of two from 4Ki to 64Ki"},
	{"policy: unknown ARC", vp("cache: {arc: Some}"), "", `supported values: "All", "Metadata", "None"`},
	{"policy: unknown L2ARC", vp("cache: {l2arc: Some}"), "", `supported values: "All", "Metadata", "None"`},
	{"policy: unknown log", vp("cache: {log: Fast}"), "", `supported values: "Latency", "Throughput"`},
	{"policy: unknown compression", vp("cache: {compression: lz4}"), "", `supported values: "Fast", "None", "Strong"`},
	{"policy: pin of a relative path", vp("cache: {pin: [{path: data}]}"), "", "spec.cache.pin[0].path"},
	{"policy: pin at no site", vp("cache: {pin: [{path: /data, sites: [A_1]}]}"), "", "spec.cache.pin[0].sites[0]"},
	{"policy: name of a site", vp("replication: {sites: {required: [A_1]}}"), "", "spec.replication.sites.required[0]"},

	{"site's long name", site(strings.Repeat("s", 64), "o", "f"), "", "a site's name is a DNS label"},
	{"site without an organization", site("s", `""`, "f"), "", "spec.organization"},
	{"site changes its organization", site("s", "o", "f"), site("s", "p", "f"), "a site does not change its organization"},
	{"site changes its federation", site("s", "o", "f"), site("s", "o", "g"), "a site does not change its federation"},

	{"pool too small", pool("1Mi", "/pool"), "", "a pool needs at least 64Mi"},
	{"pool without a directory", pool("1Gi", "pool"), "", "spec.directory"},
	{"pool that is a whole ZFS pool", zfs("tank", ""), "", "spec.zfs.dataset"},
	{"layout that nobody knows", zfs("tank/weir", "layout: RAID5, data: [/dev/sda]"), "", "spec.zfs.devices.layout"},
	{"no data devices", zfs("tank/weir", "log: [/dev/sda]"), "", "spec.zfs.devices.data"},
	{"device without a path", zfs("tank/weir", "data: [sda]"), "", "spec.zfs.devices.data"},
	{"device twice", zfs("tank/weir", "data: [/dev/sda, /dev/sda]"), "", "spec.zfs.devices.data"},
	{"pool moves", pool("1Gi", "/pool"), pool("1Gi", "/other"), "a pool does not change its directory"},

	{"volume's access changes", gv("spec: {size: 1Gi}"), gv("spec: {size: 1Gi, access: ReadOnly}"),
		"access is part of the PersistentVolumeClaim, which does not change"},
	{"content without a UUID", strings.Replace(content("a.b"), "4b8cd7a4-6a3f-4a9b-8f0e-3f8d1f3f0d43", "data", 1), "",
		"a GeoVolumeContent's name is its volume's UUID"},
	{"content changes its name", content("a.b"), content("a.c"), "a volume keeps its name"},

	{"offer's name with a dot too many", offer("a.b.c", "{amount: 1Ti}"), "", "an offer's name is a DNS label"},
	{"offer of another kind", offer("x", "{kind: Tape, amount: 1Ti}"), "", `supported values: "Store", "Copy", "Cache"`},
	{"offer of nothing", offer("x", "{amount: 0}"), "", "amount must be more than 0: write how much is lent, such as 10Ti"},
	{"offer whose least is more", offer("x", "{amount: 1Ti, least: 2Ti}"), "", "least is more than amount, so nobody could ask"},
	{"offer that accepts more", offer("x", "{amount: 1Ti, automatic: 2Ti}"), "", "automatic is more than amount"},
	{"offer that ends first", offer("x", `{amount: 1Ti, from: "2027-01-02T00:00:00Z", until: "2027-01-01T00:00:00Z"}`), "",
		"until is not after from"},
	{"request of nothing", borrow("{offer: a.b, amount: 0, until: \"2030-01-01T00:00:00Z\"}"), "",
		"amount must be more than 0: write how much is wanted, such as 1Ti"},
	{"request of what is no offer", borrow("{offer: disks, amount: 1Ti, until: \"2030-01-01T00:00:00Z\"}"), "", "spec.offer"},
	{"request changes", borrow("{offer: a.b, amount: 1Ti, until: \"2030-01-01T00:00:00Z\"}"),
		borrow("{offer: a.b, amount: 2Ti, until: \"2030-01-01T00:00:00Z\"}"), "a request is signed and never changes"},
	{"decision changes", agreement("{decision: Accept}"), agreement("{decision: Decline}"), "a decision is signed and never changes"},
	{"decision is taken back", agreement("{decision: Accept}"), agreement("{why: x}"), "decision was said, and is not taken back"},
	{"notice is taken back", agreement("{notice: {}}"), agreement("{why: x}"), "notice was given, and is not taken back"},
	{"notice changes", agreement("{notice: {why: a}}"), agreement("{notice: {why: b}}"), "what was said is signed and never changes"},
	{"unpaid is taken back", agreement("{unpaid: {}}"), agreement("{why: x}"), "unpaid was said, and is not taken back"},
	{"hostGone is taken back", agreement("{hostGone: {}}"), agreement("{why: x}"), "hostGone was said, and is not taken back"},
	{"drained is taken back", agreement("{drained: {}}"), agreement("{why: x}"), "drained was said, and is not taken back"},
	{"delete is taken back", agreement("{delete: {}}"), agreement("{why: x}"), "delete was said, and is not taken back"},
	{"notice is taken back with the whole spec", agreement("{notice: {}}"), agreement("{}"), "notice was given, and is not taken back"},
	{"all that was said is taken out", agreement("{notice: {}}"), apiVersion + "kind: StorageAgreement\nmetadata: {name: a}\n",
		"spec has what was said and signed"},
	{"quota of less than nothing", quota("{per: All, amount: -1}"), "", "amount must not be negative"},
	{"quota without per", quota("{amount: 1Ti}"), "", "spec.per"},
	{"quota per what nobody knows", quota("{per: Pod, amount: 1Ti}"), "", "spec.per"},
	{"quota of agreements of one's own", quota("{per: All, amount: 1Ti, where: {whose: Own, agreements: [x]}}"), "",
		"room by agreement is that of others, so nothing would count"},
	{"quota of stores of one's own", quota("{per: All, amount: 1Ti, where: {whose: Own, kind: Store}}"), "",
		"room by agreement is that of others, so nothing would count"},
	{"quota of a namespace that cannot be", quota("{per: All, amount: 1Ti, namespaces: {names: [A_1]}}"), "", "spec.namespaces.names[0]"},
	{"quota at a site that cannot be", quota("{per: All, amount: 1Ti, where: {sites: [A_1]}}"), "", "spec.where.sites[0]"},

	{"usage of another agreement", exchange("StorageUsage", "u", "{agreement: a}"), exchange("StorageUsage", "u", "{agreement: b}"),
		"what was counted is of one agreement"},
}

const apiVersion = "apiVersion: storage.weir.dev/v1alpha1\n"

// exchange is an object of the exchange of storage.
func exchange(kind, name, spec string) string {
	return apiVersion + "kind: " + kind + "\nmetadata: {name: " + name + "}\nspec: " + spec
}

func offer(name, spec string) string { return exchange("StorageOffer", name, spec) }

func borrow(spec string) string { return exchange("StorageRequest", "r", spec) }

func snapshot(name, spec string) string {
	return apiVersion + "kind: GeoVolumeSnapshot\nmetadata: {name: " + name + ", namespace: default}\n" +
		"spec: {source: {name: v}, " + spec + "}"
}

func quota(spec string) string { return exchange("PlacementQuota", "q", spec) }

func agreement(spec string) string { return exchange("StorageAgreement", "a", spec) }

func gv(spec string) string {
	return apiVersion + "kind: GeoVolume\nmetadata: {name: v, namespace: default}\n" + spec
}

func vp(spec string) string {
	return apiVersion + "kind: VolumePolicy\nmetadata: {name: p}\nspec: {" + spec + "}"
}

func site(name, organization, federation string) string {
	return apiVersion + "kind: Site\nmetadata: {name: " + name +
		"}\nspec: {organization: " + organization + ", federation: " + federation + "}"
}

func pool(size, dir string) string {
	return apiVersion + "kind: CachePool\nmetadata: {name: p}\n" +
		"spec: {size: " + size + ", directory: " + dir + ", gateway: weir/weir-gateway}"
}

func zfs(dataset, devices string) string {
	return apiVersion + "kind: CachePool\nmetadata: {name: p}\nspec: {size: 10Gi, directory: /pool, gateway: weir/a, " +
		"zfs: {dataset: " + dataset + ", devices: {" + devices + "}}}"
}

func content(name string) string {
	return apiVersion + "kind: GeoVolumeContent\nmetadata: {name: 4b8cd7a4-6a3f-4a9b-8f0e-3f8d1f3f0d43}\n" +
		"spec: {federationName: " + name + ", owner: a, size: 1Gi}"
}

func TestRefusals(t *testing.T) {
	c, err := client.New(Start(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c = client.WithFieldValidation(c, "Strict")
	for _, r := range refusals {
		t.Run(r.name, func(t *testing.T) {
			o := object(t, r.object)
			err := c.Create(t.Context(), o)
			if r.change != "" {
				if err != nil {
					t.Fatal(err)
				}
				changed := object(t, r.change)
				changed.SetResourceVersion(o.GetResourceVersion())
				err = c.Update(t.Context(), changed)
				if derr := c.Delete(t.Context(), o); derr != nil {
					t.Error(derr)
				}
			}
			if err == nil {
				t.Fatal("it was accepted")
			}
			if !strings.Contains(err.Error(), r.says) {
				t.Errorf("says: %v\nwant: %s", err, r.says)
			}
		})
	}
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := new(unstructured.Unstructured)
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return o
}

// Every rule of the kinds has a refusal above, and what is sensible is accepted.
func TestEveryRuleIsTested(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(source(t), "config", "crd", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal("no CRDs: run make generate")
	}
	seen := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages(t, text) {
			seen++
			tested := false
			for _, r := range refusals {
				tested = tested || strings.Contains(m, r.says)
			}
			if !tested {
				t.Errorf("%s: no test for the rule %q", filepath.Base(f), m)
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d rules found", seen)
	}
}

// messages collects the messages of x-kubernetes-validations in a CRD.
func messages(t *testing.T, text []byte) (out []string) {
	t.Helper()
	var tree any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	var walk func(any)
	walk = func(n any) {
		switch n := n.(type) {
		case map[string]any:
			for k, v := range n {
				if rules, ok := v.([]any); ok && k == "x-kubernetes-validations" {
					for _, r := range rules {
						out = append(out, r.(map[string]any)["message"].(string))
					}
				}
				walk(v)
			}
		case []any:
			for _, v := range n {
				walk(v)
			}
		}
	}
	walk(tree)
	return out
}

func TestAccepted(t *testing.T) {
	c, err := client.New(Start(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c = client.WithFieldValidation(c, "Strict")
	for _, text := range []string{
		gv("spec: {size: 10Gi}"),
		gv("spec: {size: 1073741824, policy: safe, grants: [{site: b, namespace: lab}, {site: b, namespace: lab2}], " +
			"reclaimPolicy: Delete, replication: {copies: 3}, durability: {acknowledge: Sites, sites: 3, maxLag: {time: 1m, bytes: 1Gi}}}"),
		gv("spec: {import: {volume: default.v}, access: ReadOnly, cache: {size: 10Gi}}"),
		vp("replication: {copies: 3, spread: Organization, sites: {required: [a], preferred: [a, b], forbidden: [c], " +
			"selector: {matchLabels: {jurisdiction: eu}}}}, " +
			"durability: {acknowledge: Sites, sites: 2, whenDegraded: Continue}, consistency: {mode: Bounded, maxStaleness: 5s}, " +
			"home: {preferredSites: [a]}"),
		apiVersion + "kind: VolumePolicy\nmetadata: {name: q}\n",
		vp("cache: {size: 10Gi, reserve: 1Gi, memory: 64Mi, arc: Metadata, l2arc: None, log: Throughput, readAhead: 0, blockSize: 8Ki, " +
			"compression: Strong, pin: [{path: '/data/**/*.h5', sites: [a]}, {path: /}]}"),
		vp("cache: {pool: {matchLabels: {tier: nvme, example.org/rack: r1}}}"),
		vp("cache: {prefetch: Directory, readAhead: 64Mi, blockSize: 65536}"),
		site("ams", "surf", "research"), pool("10Gi", "/pool"), content("default.v"),
		zfs("tank/weir", "layout: Mirror, data: [/dev/sda, /dev/sdb], log: [/dev/sdc], cache: [/dev/sdd]"),
		offer("disks",
			"{amount: 100Ti, automatic: 5Ti, least: 1Ti, class: Archive, to: [RUG], notice: 720h, from: \"2027-01-01T00:00:00Z\"}"),
		offer("copies", "{kind: Copy, amount: 1Ti}"), offer("room", "{kind: Cache, amount: 1Ti}"),
		offer("ams.disks", "{amount: 100Ti}"), borrow("{offer: ams.disks, amount: 1Ti, until: \"2030-01-01T00:00:00Z\", price: \"\"}"),
		quota("{per: All, amount: 0}"),
		quota("{per: Namespace, amount: 10Ti, namespaces: {names: [lab], selector: {matchLabels: {team: climate}}}, " +
			"where: {sites: [ams], selector: {matchLabels: {tier: nvme}}, organizations: [SURF B.V.], whose: Own, kind: Copy}}"),
		quota("{per: Namespace, amount: 10Ti, where: {agreements: [0a6b4c1e-7a0b-4a42-9a2e-0000000000aa], whose: Others}}"),
		agreement("{decision: Accept, endpoint: \"https://store:7005\", rooms: [{gateway: g, amount: 1Ti}]}"),
	} {
		o := object(t, text)
		if err := c.Create(t.Context(), o, client.DryRunAll); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
}
