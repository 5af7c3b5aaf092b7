// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/weir-storage/weir/test/e2e/kube"
)

// f is the installation that all specs share, because installing takes the most time.
var f *Federated

// TestInstalled starts three clusters, installs Weir, and runs the specs. To run one spec alone:
// -ginkgo.focus 'words of its name'.
func TestInstalled(t *testing.T) {
	c := kube.Test(t, kube.Config{Sites: []string{"a", "b", "c"}})
	ctx, cancel := context.WithTimeout(t.Context(), 2*hang)
	defer cancel()
	var err error
	if f, err = Install(ctx, c, Config{Stores: []string{"b", "c"}, Snapshots: []string{"a"}}, t.Logf); err != nil {
		t.Fatal(err)
	}
	gomega.RegisterFailHandler(Fail)
	suite, report := GinkgoConfiguration()
	report.NoColor = true
	suite.Timeout = 31 * time.Minute // before `go test` ends all: so what hangs is named, last
	RunSpecs(t, "Weir on Kubernetes", suite, report)
}

var _ = Describe("three clusters", Ordered, ContinueOnFailure, func() {
	BeforeAll(shared)
	Context("a machine", preflight)
	Context("a pool", pooled)
	Context("volumes", volumes)
	Context("snapshots of Kubernetes", snapshotted)
	Context("a copy that is made", copied)
	Context("who may use a volume, and how", access)
	Context("room that is lent", lending)
	Context("deletion and ownership", deletion)
	Context("the node plugin", plugin)
	Context("the node plugin and packets", killing)
	Context("a node", node)
	Context("what is measured", measured)
	Context("support", supported)
	Context("a site's key", sealed)
	Context("an upgrade", upgrade)
	Context("the registry and the API server", outages)
	Context("a site", lost)
	Context("a cluster", leaving)
})
