// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// effects says of each field that a person or an operator writes what it does, and which test shows
// that: a folder, and a test in it.
var effects = map[string][2]string{
	"GeoVolume.size":             {"how much the volume may hold", "controllers TestGrowth"},
	"GeoVolume.policy":           {"the policy that is in force", "controllers TestAPolicyIsRolledOut"},
	"GeoVolume.import.volume":    {"the volume that is claimed", "controllers TestImports"},
	"GeoVolume.source.snapshot":  {"what it begins with", "controllers TestVolumeOfASnapshot"},
	"GeoVolume.source.volume":    {"what it begins with", "controllers TestVolumeOfAVolume"},
	"GeoVolume.access":           {"what its pods may do", "controllers TestImports"},
	"GeoVolume.grants.site":      {"who may import it", "controllers TestAGrantIsTakenBack"},
	"GeoVolume.grants.namespace": {"who may import it", "controllers TestAGrantIsTakenBack"},
	"GeoVolume.grants.access":    {"what an import may do", "controllers TestImports"},
	"GeoVolume.reclaimPolicy":    {"what becomes of the data", "controllers/plan TestDispose"},

	"StorageOffer.kind":              {"what is lent", "controllers TestLending"},
	"StorageOffer.amount":            {"how much is lent", "controllers TestLending"},
	"StorageOffer.price":             {"what it costs", "controllers TestLending"},
	"StorageOffer.notice":            {"how long before its end", "controllers TestLending"},
	"StorageOffer.grace":             {"how long after its end", "controllers TestLending"},
	"StorageOffer.least":             {"the smallest request", "controllers TestBadPapers"},
	"StorageOffer.to":                {"who may ask", "controllers TestBadPapers"},
	"StorageOffer.automatic":         {"what is accepted by itself", "controllers TestLendingByItself"},
	"StorageOffer.closed":            {"that nobody may ask", "controllers TestOfferFields"},
	"StorageOffer.media":             {"on what it is", "controllers TestOfferFields"},
	"StorageOffer.class":             {"how fast it is", "controllers TestOfferFields"},
	"StorageOffer.terms":             {"what else is agreed on", "controllers TestOfferFields"},
	"StorageOffer.from":              {"when it begins", "controllers TestOfferFields"},
	"StorageOffer.until":             {"when it ends", "controllers TestOfferFields"},
	"StorageRequest.offer":           {"what is asked for", "controllers TestLending"},
	"StorageRequest.amount":          {"how much", "controllers TestLending"},
	"StorageRequest.until":           {"until when", "controllers TestLending"},
	"StorageRequest.purpose":         {"what for", "controllers TestLending"},
	"StorageRequest.answerBy":        {"how long it waits", "controllers TestBadPapers"},
	"StorageRequest.price":           {"that nothing else is signed", "controllers TestBadPapers"},
	"StorageAgreement.decision":      {"what the host says", "controllers TestLending"},
	"StorageAgreement.notice.why":    {"notice", "controllers TestLending"},
	"StorageAgreement.drained.why":   {"that it is needed no more", "controllers TestLending"},
	"StorageAgreement.delete.why":    {"that the host deletes", "controllers TestLending"},
	"StorageAgreement.why":           {"what is said", "controllers TestWhatPeopleSay"},
	"StorageAgreement.endpoint":      {"what is said", "controllers TestWhatPeopleSay"},
	"StorageAgreement.unpaid.why":    {"what is said", "controllers TestWhatPeopleSay"},
	"StorageAgreement.hostGone.why":  {"what is said", "controllers TestWhatPeopleSay"},
	"StorageAgreement.rooms.gateway": {"what is said", "controllers TestWhatPeopleSay"},
	"StorageAgreement.rooms.amount":  {"what is said", "controllers TestWhatPeopleSay"},
	"StorageUsage.agreement":         {"what is counted", "controllers TestLending"},

	"PlacementQuota.namespaces.names":    {"whose volumes count", "controllers TestQuotaOfNamespaces"},
	"PlacementQuota.namespaces.selector": {"whose volumes count", "controllers TestQuotaOfNamespaces"},
	"PlacementQuota.per":                 {"what counts together", "controllers TestQuotaOfNamespaces"},
	"PlacementQuota.amount":              {"how much", "controllers TestQuota"},
	"PlacementQuota.where.sites":         {"where it counts", "controllers/plan TestQuotaWhere"},
	"PlacementQuota.where.selector":      {"where it counts", "controllers/plan TestQuotaWhere"},
	"PlacementQuota.where.organizations": {"where it counts", "controllers/plan TestQuotaWhere"},
	"PlacementQuota.where.agreements":    {"where it counts", "controllers/plan TestQuotaWhere"},
	"PlacementQuota.where.whose":         {"where it counts", "controllers/plan TestQuotaWhere"},
	"PlacementQuota.where.kind":          {"where it counts", "controllers/plan TestQuotaWhere"},

	"GeoVolumeContent.source.volume":   {"what it begins with", "controllers TestVolumeOfAVolume"},
	"GeoVolumeContent.source.snapshot": {"what it begins with", "controllers TestVolumeOfASnapshot"},

	"GeoVolumeSnapshot.source.kind":    {"of which volume it is", "controllers TestSnapshotSources"},
	"GeoVolumeSnapshot.source.name":    {"of which volume it is", "controllers TestSnapshotSources"},
	"GeoVolumeSnapshot.snapshotName":   {"its name in the volume", "controllers TestSnapshotSources"},
	"GeoVolumeSnapshot.hold":           {"changes are held before it is taken", "csi-driver TestGroupIsOfOneMoment"},
	"GeoVolumeSnapshot.take":           {"it is taken", "csi-driver TestGroupIsOfOneMoment"},
	"GeoVolumeSnapshot.deletionPolicy": {"whether it is dropped", "controllers TestSnapshotIsRetained"},
	"GeoVolumeSnapshot.rollback":       {"the volume is rolled back", "controllers TestSnapshotRollsBack"},

	"VolumePolicy.snapshots.schedule.every": {"when one is taken", "gateway TestScheduledSnapshots"},
	"VolumePolicy.snapshots.schedule.keep":  {"how many stay", "gateway TestScheduledSnapshots"},
	"VolumePolicy.snapshots.window":         {"any second can be looked at", "gateway TestSnapshotSettings"},
	"VolumePolicy.snapshots.directory":      {"whether there is .snapshots", "gateway TestSnapshotSettings"},
	"VolumePolicy.trash.keep":               {"removed files are in .trash", "gateway TestTrashSetting"},
	"VolumePolicy.encryption.rotateEvery":   {"another data key follows", "gateway TestKeysFollow"},
	"VolumePolicy.encryption.rotation":      {"another data key follows", "gateway TestKeysFollow"},
	"VolumePolicy.encryption.erase":         {"a purge destroys the keys", "gateway TestErasedVolume"},
	"VolumePolicy.encryption.reseal":        {"old segments get the newest key", "gateway TestResealed"},
	"VolumePolicy.quota.files":              {"how many files it may hold", "gateway TestQuotaOfFiles"},
	"VolumePolicy.scrub.every":              {"how often copies are read", "gateway/scrub TestScrubByPolicy"},
	"VolumePolicy.scrub.rate":               {"how fast copies are read", "gateway/scrub TestScrubByPolicy"},
	"VolumePolicy.compaction.rate":          {"how fast blocks move", "gateway/checkpoints TestPaceOfPacks"},
	"VolumePolicy.compaction.hours":         {"when blocks move", "gateway TestCompactionByPolicy"},
	"VolumePolicy.encryption.acceptOneSite": {"one copy is accepted", "federation/spec TestStories"},

	"VolumePolicy.replication.copies":             {"how many sites have a copy", "controllers/plan TestPlace"},
	"VolumePolicy.replication.spread":             {"how the copies are spread", "controllers/plan TestPlace"},
	"VolumePolicy.replication.sites.required":     {"sites that have a copy", "controllers/plan TestPlace"},
	"VolumePolicy.replication.sites.preferred":    {"sites that come first", "controllers/plan TestPlace"},
	"VolumePolicy.replication.sites.forbidden":    {"sites without a copy", "controllers/plan TestPlace"},
	"VolumePolicy.replication.sites.blind":        {"copies without the key", "controllers/plan TestPlaceBlind"},
	"VolumePolicy.replication.otherOrganizations": {"copies without the key", "controllers/plan TestPlaceBlind"},
	"VolumePolicy.replication.stores":             {"in how many lent stores it is", "controllers/plan TestPlaceStores"},
	"VolumePolicy.replication.sites.selector":     {"sites that may have a copy", "controllers/plan TestSelectorIsTheOverrides"},
	"VolumePolicy.durability.acknowledge":         {"who must have a write", "gateway TestAcknowledgeAtTwoSites"},
	"VolumePolicy.durability.sites":               {"at how many sites", "gateway TestAcknowledgeAtTwoSites"},
	"VolumePolicy.durability.whenDegraded":        {"whether writes wait", "replica/protocol TestStories"},
	"VolumePolicy.durability.maxLag.time":         {"when writers are slowed", "replica TestMaxLagSlowsWriters"},
	"VolumePolicy.durability.maxLag.bytes":        {"when writers are slowed", "replica TestMaxLagSlowsWriters"},
	"VolumePolicy.consistency.mode":               {"what readers elsewhere see", "gateway TestBoundedVolume"},
	"VolumePolicy.consistency.maxStaleness":       {"how old that may be", "replica/outline TestBounded"},
	"VolumePolicy.cache.pool.matchLabels":         {"which pool it is on", "gateway TestVolumesMoveToThePoolOfTheirPolicy"},
	"VolumePolicy.cache.size":                     {"what is kept at most", "gateway TestFileTenTimesTheCache"},
	"VolumePolicy.cache.reserve":                  {"what others cannot push out", "gateway TestLogsComeFirst"},
	"VolumePolicy.cache.memory":                   {"what is in memory at most", "gateway TestTuningIsLive"},
	"VolumePolicy.cache.arc":                      {"ZFS' primarycache", "cachepool/zfs TestTune"},
	"VolumePolicy.cache.l2arc":                    {"ZFS' secondarycache", "cachepool/zfs TestTune"},
	"VolumePolicy.cache.log":                      {"ZFS' logbias", "cachepool/zfs TestTune"},
	"VolumePolicy.cache.readAhead":                {"what is fetched ahead", "gateway TestTuningIsLive"},
	"VolumePolicy.cache.prefetch":                 {"what is fetched before it is read", "gateway TestPrefetch"},
	"VolumePolicy.cache.blockSize":                {"the largest new block", "gateway TestTuningIsLive"},
	"VolumePolicy.cache.compression":              {"that of new blocks", "gateway TestTuningIsLive"},
	"VolumePolicy.cache.pin.path":                 {"what is kept whatever is read", "gateway TestPins"},
	"VolumePolicy.cache.pin.sites":                {"where", "gateway TestPins"},
	"VolumePolicy.home.preferredSites":            {"where a volume begins", "controllers/plan TestPlace"},
	"VolumePolicy.clients.squash":                 {"who is nobody", "gateway/identity TestMap"},
	"VolumePolicy.clients.anonymousUID":           {"who nobody is", "gateway/identity TestMap"},
	"VolumePolicy.clients.anonymousGID":           {"who nobody is", "gateway/identity TestMap"},
	"VolumePolicy.clients.uids.client":            {"who a user is", "gateway/identity TestMap"},
	"VolumePolicy.clients.uids.volume":            {"who a user is", "gateway/identity TestMap"},
	"VolumePolicy.clients.uids.count":             {"who a user is", "gateway/identity TestMap"},
	"VolumePolicy.clients.gids.client":            {"which group is which", "gateway/identity TestMap"},
	"VolumePolicy.clients.gids.volume":            {"which group is which", "gateway/identity TestMap"},
	"VolumePolicy.clients.gids.count":             {"which group is which", "gateway/identity TestMap"},
	"VolumePolicy.clients.mask":                   {"which permissions count", "gateway/identity TestMap"},
	"VolumePolicy.clients.certificates":           {"who is refused without one", "gateway TestForeignUsers"},

	"CachePool.size":               {"is compared with what the gateway keeps to", "controllers/plan TestPoolDiffers"},
	"CachePool.directory":          {"is compared with the pool", "controllers/plan TestPoolDiffers"},
	"CachePool.zfs.dataset":        {"is compared with the pool", "controllers/plan TestPoolDiffers"},
	"CachePool.zfs.devices.data":   {"is compared with the pool", "controllers/plan TestPoolDiffers"},
	"CachePool.zfs.devices.layout": {"is compared with the pool", "controllers/plan TestPoolDiffers"},
	"CachePool.zfs.devices.log":    {"is compared with the pool", "controllers/plan TestPoolDiffers"},
	"CachePool.zfs.devices.cache":  {"is compared with the pool", "controllers/plan TestPoolDiffers"},
	"CachePool.gateway":            {"the gateway that is asked", "controllers TestCachePool"},
	"CachePool.name":               {"the pool that is asked for", "controllers TestCachePool"},

	"GeoVolumeContent.owner":            {"who decides about the volume", "controllers TestSuperseded"},
	"GeoVolumeContent.size":             {"how much the volume may hold", "controllers TestGrowth"},
	"GeoVolumeContent.policy":           {"the policy that is in force", "controllers TestAPolicyIsRolledOut"},
	"GeoVolumeContent.reclaimPolicy":    {"what becomes of the data", "controllers/plan TestDispose"},
	"GeoVolumeContent.federationName":   {"the volume's name in the registry", "controllers TestConflictingObjects"},
	"GeoVolumeContent.claims.kind":      {"claims of this cluster", "controllers TestImports"},
	"GeoVolumeContent.claims.namespace": {"claims of this cluster", "controllers TestImports"},
	"GeoVolumeContent.claims.name":      {"claims of this cluster", "controllers TestImports"},
	"GeoVolumeContent.claims.uid":       {"claims of this cluster", "controllers TestImports"},
	"GeoVolumeContent.claims.access":    {"claims of this cluster", "controllers TestImports"},
	"GeoVolumeContent.grants.site":      {"who may import it", "controllers TestAGrantIsTakenBack"},
	"GeoVolumeContent.grants.namespace": {"who may import it", "controllers TestAGrantIsTakenBack"},
	"GeoVolumeContent.grants.access":    {"what an import may do", "controllers TestImports"},

	// A Site only shows what the registry has; what a person writes there is put back.
	"Site.organization":       {"shown", "controllers TestSites"},
	"Site.region":             {"shown", "controllers TestSites"},
	"Site.federation":         {"shown", "controllers TestSites"},
	"Site.endpoints.gateway":  {"shown", "controllers TestSites"},
	"Site.endpoints.store":    {"shown", "controllers TestSites"},
	"Site.endpoints.registry": {"shown", "controllers TestSites"},
}

// TestEveryFieldHasAnEffect: no field of any kind is accepted and ignored. A field that is new here
// needs a line above, and a test. What a policy's fields come to in the registry, in policies and
// in GeoVolumes, is TestEveryFieldCounts' and TestLocalCache's, of controllers/plan.
func TestEveryFieldHasAnEffect(t *testing.T) {
	seen := map[string]bool{}
	var walk func(at string, in reflect.Type)
	walk = func(at string, in reflect.Type) {
		for in.Kind() == reflect.Pointer || in.Kind() == reflect.Slice {
			in = in.Elem()
		}
		if in.Kind() != reflect.Struct || in.PkgPath() != reflect.TypeFor[GeoVolumeSpec]().PkgPath() {
			seen[at] = true
			return
		}
		if in == reflect.TypeFor[VolumePolicySpec]() {
			at = "VolumePolicy" // overrides have the same fields
		}
		for f := range in.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			next := at + "." + name
			switch f.Type {
			case reflect.TypeFor[*Replication](), reflect.TypeFor[*Durability](), reflect.TypeFor[*Consistency](),
				reflect.TypeFor[*Cache](), reflect.TypeFor[*Home](), reflect.TypeFor[*Clients](), // of a grant too
				reflect.TypeFor[*Snapshots](), reflect.TypeFor[*Trash](), reflect.TypeFor[*Encryption](),
				reflect.TypeFor[*VolumeQuota](), reflect.TypeFor[*Scrub](), reflect.TypeFor[*Compaction]():
				next = "VolumePolicy." + name
			}
			walk(next, f.Type)
		}
	}
	for kind, spec := range map[string]reflect.Type{"GeoVolume": reflect.TypeFor[GeoVolumeSpec](),
		"GeoVolumeContent": reflect.TypeFor[GeoVolumeContentSpec](), "VolumePolicy": reflect.TypeFor[VolumePolicySpec](),
		"CachePool": reflect.TypeFor[CachePoolSpec](), "Site": reflect.TypeFor[SiteSpec](),
		"StorageOffer": reflect.TypeFor[StorageOfferSpec](), "StorageRequest": reflect.TypeFor[StorageRequestSpec](),
		"StorageAgreement": reflect.TypeFor[StorageAgreementSpec](), "StorageUsage": reflect.TypeFor[StorageUsageSpec](),
		"PlacementQuota": reflect.TypeFor[PlacementQuotaSpec](), "GeoVolumeSnapshot": reflect.TypeFor[GeoVolumeSnapshotSpec]()} {
		walk(kind, spec)
	}
	for at := range seen {
		if _, ok := effects[at]; !ok {
			t.Errorf("%s: nothing says what it does", at)
		}
	}
	tests := map[string]string{} // text by folder
	for at, e := range effects {
		if !seen[at] {
			t.Errorf("%s: there is no such field", at)
		}
		folder, name, _ := strings.Cut(e[1], " ")
		if _, ok := tests[folder]; !ok {
			files, err := filepath.Glob(filepath.Join("..", "..", folder, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				text, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				tests[folder] += string(text)
			}
		}
		if !regexp.MustCompile(`(?m)^func ` + name + `\(t \*testing\.T\)`).MatchString(tests[folder]) {
			t.Errorf("%s: %s has no %s", at, folder, name)
		}
	}
	kinds, err := filepath.Glob("*_types.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range kinds {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^type (\w+)Spec struct`).FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains("GeoVolume GeoVolumeContent VolumePolicy CachePool Site StorageOffer StorageRequest StorageAgreement "+
				"StorageUsage PlacementQuota GeoVolumeSnapshot", m[1]) {
				t.Errorf("%s: kind %s is not walked", f, m[1])
			}
		}
	}
}
