// SPDX-License-Identifier: Apache-2.0

package layout

// row says what one package, or with a final "/..." all packages below a folder, may import. The most specific row counts.
type row struct {
	pkg     string   // path below the module
	project []string // packages of this project that its code may import; "x/..." is x and all below, "..." is everything
	outside []string // packages of other modules, by prefix; nil: any but Kubernetes'
	tests   []string // what its tests may import besides: and fixtures, always
}

// stdlib in row.outside allows the standard library only.
var stdlib = []string{}

// fixtures are there to be imported by tests, of any package. Code may import them only where its row says so.
var fixtures = []string{
	"cachepool/crashfs",
	"cachepool/pooltest",
	"federation/etcd/etcdtest",
	"federation/federationtest",
	"federation/memory",
	"store/memory",
	"store/s3/s3test",
	"store/storetest",
	"volume/memvol",
	"volume/volumetest",
}

// kubernetes lists the folders that may import Kubernetes, and kubernetesModules what that means.
var (
	kubernetes        = []string{"api", "charts", "controllers", "csi-driver", "console", "cmd", "test/apiserver", "test/scale"}
	kubernetesModules = []string{"k8s.io/", "sigs.k8s.io/"}
	notKubernetes     = []string{"sigs.k8s.io/yaml"}
)

var table = []row{
	// The contract.
	{pkg: "volume", outside: stdlib},
	{pkg: "volume/locktable", project: []string{"volume"}, outside: stdlib},
	{pkg: "volume/memvol", project: []string{"volume", "volume/locktable"}, outside: stdlib},
	{pkg: "volume/volumetest", project: []string{"volume", "volume/memvol"}, outside: []string{"pgregory.net/rapid"}},

	// Ports: where bytes are kept, and where sites agree.
	{pkg: "cachepool", outside: stdlib},
	{pkg: "cachepool/crashfs", project: []string{"cachepool"}, outside: stdlib},
	{pkg: "cachepool/dir", project: []string{"cachepool"}},
	{pkg: "cachepool/pooltest", project: []string{"cachepool"}},
	{pkg: "store", outside: stdlib},
	{pkg: "store/dir", project: []string{"store"}},
	{pkg: "store/memory", project: []string{"store"}},
	{pkg: "store/s3", project: []string{"store"}},
	{pkg: "store/s3/s3test", project: []string{"store", "store/s3"}},
	{pkg: "store/storetest", project: []string{"store"}},
	{pkg: "federation", outside: stdlib},
	{pkg: "federation/internal/records", project: []string{"federation"}, outside: stdlib},
	{pkg: "federation/etcd", project: []string{"federation", "federation/internal/records"}, tests: []string{"pki"}},
	{pkg: "federation/etcd/etcdtest"},
	{pkg: "federation/federationtest", project: []string{"federation"}},
	{pkg: "federation/keyring", project: []string{"federation"}, outside: stdlib},
	{pkg: "federation/memory", project: []string{"federation", "federation/internal/records"}},
	{pkg: "federation/spec", project: []string{"federation"}, outside: []string{"sigs.k8s.io/yaml"}},
	{pkg: "pki", outside: stdlib},

	// A volume over a log.
	{pkg: "engine", project: []string{"volume", "volume/locktable", "engine/...", "store", "cachepool"}},
	{pkg: "engine/segment", outside: []string{"github.com/klauspost/compress", "github.com/zeebo/blake3"}},
	{pkg: "engine/log", project: []string{"engine/segment", "cachepool"}, outside: []string{"github.com/zeebo/blake3"}, tests: []string{"cachepool/dir"}},
	{pkg: "engine/meta", project: []string{"volume", "engine/segment", "engine/meta/cryptfs"}},
	{pkg: "engine/meta/cryptfs"},

	// Copies. protocol decides and does nothing else: no module that could do input or output.
	{pkg: "replica", project: []string{"engine/log", "engine/segment", "store", "federation", "replica/protocol"}},
	{pkg: "replica/protocol", project: []string{"engine/log", "engine/segment", "federation"}, outside: stdlib},
	{pkg: "replica/peer", project: []string{"replica", "replica/protocol", "replica/peer/peerpb", "engine/log"}, tests: []string{"pki"}},
	{pkg: "replica/peer/peerpb"},

	// Serving.
	{pkg: "gateway", project: []string{"volume", "volume/locktable", "engine", "engine/log", "engine/segment", "replica/...", "federation",
		"federation/keyring", "cachepool", "store", "pki", "gateway/..."}, tests: []string{"cachepool/dir", "federation/spec"}},
	{pkg: "gateway/forward", project: []string{"volume", "engine/log", "gateway/forward/forwardpb"}},
	{pkg: "gateway/forward/forwardpb"},
	{pkg: "gateway/node/nodepb"},
	{pkg: "gateway/nfs", project: []string{"volume", "gateway/nfs/state", "gateway/nfs/xdr"}, outside: stdlib, tests: []string{"gateway/nfs/..."}},
	{pkg: "gateway/nfs/client", project: []string{"volume", "gateway/nfs/xdr"}, outside: stdlib, tests: []string{"gateway/nfs/..."}},
	{pkg: "gateway/nfs/state", project: []string{"volume", "gateway/nfs/xdr"}, outside: stdlib},
	{pkg: "gateway/nfs/xdr", outside: stdlib},

	// Kubernetes. What the driver needs of the registry and the gateway comes through its ports.
	{pkg: "api/v1alpha1", outside: []string{"github.com/google/uuid", "k8s.io/apimachinery"}},
	{pkg: "controllers", project: []string{"api/v1alpha1", "controllers/plan", "federation", "federation/keyring"}, tests: []string{"test/apiserver"}},
	{pkg: "controllers/plan", project: []string{"api/v1alpha1", "federation", "federation/spec"}, outside: []string{"k8s.io/apimachinery"}},
	{pkg: "csi-driver", project: []string{"api/v1alpha1"}},

	// The program, and what looks at all of it from outside.
	{pkg: "cmd/...", project: []string{"..."}},
	{pkg: "test/apiserver"},
	{pkg: "test/e2e/...", project: []string{"..."}},
	{pkg: "test/e2e/stage"}, // knows machines and networks, nothing of this project
	{pkg: "test/e2e/kube", project: []string{"hack/image", "test/e2e/stage"}, outside: []string{"github.com/google/go-containerregistry"}},
	{pkg: "test/e2e/kube/pause", outside: stdlib},
	{pkg: "test/layout", outside: stdlib},
	{pkg: "test/scale", outside: stdlib, tests: []string{"api/v1alpha1", "federation", "federation/etcd", "federation/keyring", "federation/spec", "pki", "test/apiserver"}},
	{pkg: "hack/...", outside: stdlib},
	{pkg: "hack/image", outside: []string{"github.com/google/go-containerregistry", "github.com/klauspost/compress"}},
	{pkg: "hack/release", project: []string{"hack/image"}, outside: []string{"github.com/CycloneDX/cyclonedx-go",
		"github.com/google/go-containerregistry", "github.com/klauspost/compress", "golang.org/x/crypto/x509roots/fallback"}},
	{pkg: "charts", outside: stdlib, tests: []string{"api/v1alpha1", "pki"}}, // a Helm chart, and its tests
}
