// SPDX-License-Identifier: Apache-2.0

package layout

// row says what one package, or with a final "/..." all packages below a folder, may import. The
// most specific row counts.
type row struct {
	pkg     string   // path below the module
	project []string // packages of this project that its code may import; "x/..." is x and all below, "..." is everything
	outside []string // packages of other modules, by prefix; nil: any but Kubernetes'
	tests   []string // what its tests may import besides: and fixtures, always
}

// stdlib in row.outside allows the standard library only.
var stdlib = []string{}

// fixtures are there to be imported by tests, of any package. Code may import them only where its
// row says so.
var fixtures = []string{
	"cachepool/crashfs",
	"cachepool/pooltest",
	"cachepool/zfs/zfstest",
	"cmd/weir/internal/clitest",
	"federation/etcd/etcdtest",
	"federation/federationtest",
	"federation/memory",
	"gateway/nfs/state/statetest",
	"journal/journaltest",
	"store/memory",
	"store/s3/s3test",
	"store/storetest",
	"volume/memvol",
	"volume/volumetest",
}

// kubernetes lists the folders that may import Kubernetes, and kubernetesModules what that means.
var (
	kubernetes = []string{"api", "charts", "controllers", "csi-driver", "console", "cmd", "test/apiserver", "test/e2e/kube",
		"test/scale"}
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
	{pkg: "cachepool/counted", outside: []string{"github.com/cockroachdb/pebble/v2"}, tests: []string{"cachepool"}},
	{pkg: "cachepool/failstop", outside: []string{"github.com/cockroachdb/pebble/v2"}},
	{pkg: "cachepool/pooltest", project: []string{"cachepool"}},
	{pkg: "cachepool/readcache", project: []string{"cachepool"}, outside: stdlib},
	{pkg: "cachepool/zfs", project: []string{"cachepool", "cachepool/dir"}, outside: []string{"golang.org/x/sys"}},
	{pkg: "cachepool/zfs/zfstest", outside: []string{"github.com/hanwen/go-fuse"}},
	{pkg: "store", outside: stdlib},
	{pkg: "store/dir", project: []string{"store"}},
	{pkg: "store/memory", project: []string{"store"}},
	{pkg: "store/s3", project: []string{"store"}},
	{pkg: "store/s3/s3test", project: []string{"store", "store/s3"}},
	{pkg: "store/storetest", project: []string{"store"}},
	{pkg: "federation", project: []string{"federation/quantity", "federation/users"}, outside: stdlib},
	{pkg: "federation/quantity", outside: stdlib},
	{pkg: "federation/users", outside: stdlib},
	{pkg: "federation/archive", project: []string{"federation", "cachepool/failstop"},
		outside: []string{"github.com/cockroachdb/pebble/v2"}},
	{pkg: "federation/internal/records", project: []string{"federation", "federation/signed"}, outside: stdlib},
	{pkg: "federation/internal/sieve", project: []string{"federation", "federation/internal/records", "federation/signed"},
		outside: stdlib},
	{pkg: "federation/signed", project: []string{"federation", "federation/keyring", "pki"}, outside: stdlib},
	{pkg: "federation/etcd", project: []string{"federation", "federation/internal/records", "federation/internal/sieve",
		"federation/signed"}, tests: []string{"pki"}},
	{pkg: "federation/etcd/etcdtest"},
	{pkg: "federation/federationtest", project: []string{"federation"}},
	{pkg: "federation/gatekeeper", project: []string{"federation", "federation/internal/records", "federation/keyring",
		"federation/signed", "pki", "pki/transport"},
		outside: []string{"go.etcd.io/etcd/api",
			"google.golang.org/grpc"},
		tests: []string{"federation/archive", "federation/etcd"}},
	{pkg: "federation/keyring", project: []string{"federation"}, outside: stdlib},
	{pkg: "federation/memory", project: []string{"federation", "federation/internal/records", "federation/internal/sieve",
		"federation/signed"}},
	{pkg: "federation/spec", project: []string{"federation", "federation/quantity"}, outside: []string{"sigs.k8s.io/yaml"}},
	{pkg: "federation/view", project: []string{"federation", "federation/users"}, outside: stdlib},
	{pkg: "pki", outside: []string{"github.com/go-jose/go-jose/v4"}, tests: []string{"pki/transport"}},
	{pkg: "pki/transport", project: []string{"pki"}, outside: []string{"google.golang.org/grpc"}},

	// What is measured.
	{pkg: "metrics", outside: []string{"github.com/prometheus/client_golang"}},
	{pkg: "track", outside: stdlib},

	// A volume over a log.
	// Between a volume and its log.
	{pkg: "journal", project: []string{"engine/segment"}, outside: stdlib},
	{pkg: "journal/journaltest", project: []string{"journal", "engine/segment"}, outside: stdlib},

	{pkg: "engine", project: []string{"volume", "journal", "track", "engine/segment", "engine/meta", "engine/meta/cryptfs"},
		tests: []string{"volume/locktable", "engine/log", "cachepool", "cachepool/failstop"}},
	{pkg: "engine/segment", outside: []string{"github.com/klauspost/compress", "github.com/zeebo/blake3"}},
	{pkg: "engine/log", project: []string{"journal", "track", "engine/segment", "cachepool", "cachepool/readcache"},
		outside: []string{"github.com/zeebo/blake3", "golang.org/x/sync"},
		tests:   []string{"cachepool/dir"}},
	{pkg: "engine/meta", project: []string{"volume", "engine/segment", "engine/meta/cryptfs", "cachepool/failstop"}},
	{pkg: "engine/meta/cryptfs"},

	// Copies. protocol decides and does nothing else: no module that could do input or output.
	{pkg: "replica", project: []string{"journal", "track", "engine/log", "engine/segment", "cachepool/readcache", "store", "federation",
		"replica/protocol"}, tests: []string{"cachepool"}},
	{pkg: "replica/protocol", project: []string{"engine/log", "engine/segment", "federation"}, outside: stdlib},
	{pkg: "replica/peer", project: []string{"replica", "replica/protocol", "replica/peer/peerpb", "engine/log"}, tests: []string{"pki"}},
	{pkg: "replica/peer/peerpb"},
	{pkg: "replica/outline", project: []string{"journal", "engine/log", "engine/segment", "replica/peer/peerpb", "replica/protocol"},
		tests: []string{"cachepool/crashfs"}},

	// Serving.
	{pkg: "gateway", project: []string{"volume", "track", "engine", "replica", "replica/peer", "replica/peer/peerpb", "replica/protocol",
		"federation", "federation/keyring", "federation/view", "cachepool", "cachepool/readcache", "store", "pki", "gateway/admission",
		"gateway/caching", "gateway/copies", "gateway/forward/forwardpb", "gateway/keys", "gateway/meters", "gateway/nfs",
		"gateway/nfs/state",
		"gateway/node/nodepb", "gateway/peers", "gateway/moving", "gateway/pools",
		"gateway/report", "gateway/routing", "gateway/locks", "replica/outline"},
		tests: []string{"cachepool/dir", "federation/spec", "federation/users", "engine/log", "engine/segment", "journal", "gateway/...",
			"metrics"}},
	{pkg: "gateway/meters", project: []string{"cachepool", "cachepool/readcache", "engine", "federation", "gateway/nfs",
		"gateway/nfs/xdr", "metrics", "pki", "replica", "replica/protocol", "volume"},
		outside: []string{"github.com/prometheus/client_golang"}},
	{pkg: "gateway/traces", project: []string{"gateway/forward/forwardpb", "track"}},
	{pkg: "gateway/admission", project: []string{"volume", "federation", "federation/users", "federation/view", "gateway/copies",
		"gateway/identity", "gateway/nfs", "gateway/node/nodepb", "gateway/peers", "gateway/report", "gateway/routing"}},
	{pkg: "gateway/caching", project: []string{"volume", "engine", "engine/segment", "federation", "federation/view", "cachepool",
		"cachepool/readcache",
		"gateway/copies", "gateway/pools", "gateway/forward/forwardpb"}},
	{pkg: "gateway/backoff", outside: stdlib},
	{pkg: "gateway/pools", project: []string{"cachepool", "cachepool/readcache", "gateway/backoff"}, outside: stdlib,
		tests: []string{"cachepool/dir"}},
	{pkg: "gateway/copies", project: []string{"volume", "journal", "engine", "engine/log", "engine/segment", "replica", "replica/peer",
		"replica/protocol", "federation", "federation/keyring", "federation/view", "cachepool", "cachepool/counted",
		"cachepool/failstop", "cachepool/readcache", "store", "gateway/forward", "gateway/forward/forwardpb",
		"gateway/backoff", "gateway/inuse", "gateway/keys", "gateway/locks", "gateway/peers", "gateway/pools", "replica/outline",
		"replica/peer/peerpb"}},
	{pkg: "gateway/locks", project: []string{"volume", "volume/locktable", "journal", "federation", "federation/view", "gateway/forward"}},
	{pkg: "gateway/keys", project: []string{"engine/segment", "federation", "federation/keyring", "federation/view"}, outside: stdlib},
	{pkg: "gateway/inuse", project: []string{"volume"}},
	{pkg: "gateway/peers", project: []string{"engine/segment", "federation/view", "gateway/forward/forwardpb", "gateway/node/nodepb",
		"pki", "pki/transport", "replica/peer/peerpb"}},
	{pkg: "gateway/moving", project: []string{"engine/log", "federation", "federation/view", "gateway/copies", "gateway/forward/forwardpb",
		"gateway/peers", "gateway/report", "replica/protocol"}},
	{pkg: "gateway/report", project: []string{"federation", "federation/view", "gateway/copies", "gateway/forward/forwardpb",
		"gateway/peers", "replica/protocol"}},
	{pkg: "gateway/routing", project: []string{"volume", "journal", "track", "federation", "federation/view", "gateway/copies",
		"gateway/forward", "gateway/forward/forwardpb", "gateway/identity", "gateway/locks", "gateway/peers"}},
	{pkg: "gateway/forward", project: []string{"journal", "volume", "engine/log", "gateway/forward/forwardpb"}},
	{pkg: "gateway/forward/forwardpb"},
	{pkg: "gateway/node/nodepb"},
	{pkg: "gateway/identity", project: []string{"volume", "federation/users"}, outside: stdlib},
	{pkg: "gateway/nfs", project: []string{"volume", "track", "gateway/identity", "gateway/nfs/state", "gateway/nfs/xdr"}, outside: stdlib,
		tests: []string{"federation/users", "gateway/nfs/..."}},
	{pkg: "gateway/nfs/client", project: []string{"volume", "gateway/nfs/xdr"}, outside: stdlib, tests: []string{"gateway/nfs/..."}},
	{pkg: "gateway/nfs/state", project: []string{"volume", "gateway/nfs/xdr"}, outside: stdlib},
	{pkg: "gateway/nfs/state/statetest", outside: stdlib},
	{pkg: "gateway/nfs/xdr", outside: stdlib},

	// Kubernetes. What the driver needs of the registry and the gateway comes through its ports.
	{pkg: "api/v1alpha1", outside: []string{"github.com/google/uuid", "k8s.io/apimachinery"}},
	{pkg: "controllers", project: []string{"api/v1alpha1", "controllers/...", "federation", "federation/keyring", "federation/view",
		"metrics"},
		tests: []string{"cachepool", "federation/users", "pki", "test/apiserver"}},
	{pkg: "controllers/certificates", project: []string{"pki"}},
	{pkg: "controllers/desired", project: []string{"api/v1alpha1", "controllers/plan", "federation", "federation/view"}},
	{pkg: "controllers/mirror", project: []string{"controllers/plan", "federation", "federation/view"}, outside: stdlib},
	{pkg: "controllers/object", project: []string{"api/v1alpha1", "controllers/outcome"}},
	{pkg: "controllers/outcome", project: []string{"api/v1alpha1", "controllers/plan", "federation"}},
	{pkg: "controllers/pace", outside: stdlib},
	{pkg: "controllers/plan", project: []string{"api/v1alpha1", "cachepool", "federation", "federation/spec", "federation/users"},
		outside: []string{"k8s.io/apimachinery"}},
	{pkg: "csi-driver", project: []string{"api/v1alpha1"}, tests: []string{"csi-driver/..."}},
	{pkg: "csi-driver/controller", project: []string{"api/v1alpha1", "csi-driver/health", "csi-driver/internal/rpc"}},
	{pkg: "csi-driver/node", project: []string{"csi-driver/health", "csi-driver/internal/rpc", "csi-driver/mount"}},
	{pkg: "csi-driver/mount", outside: []string{"golang.org/x/sys/unix"}},
	{pkg: "csi-driver/health", project: []string{"api/v1alpha1"}},
	{pkg: "csi-driver/internal/rpc", project: []string{"api/v1alpha1"}},

	// The program, and what looks at all of it from outside.
	{pkg: "cmd/weir", project: []string{"cmd/weir/..."}, outside: []string{"github.com/spf13/cobra"}},
	// What all commands share. Only process, for the processes of a cluster, knows Kubernetes;
	// config has its rules for labels.
	{pkg: "cmd/weir/internal/cli", outside: []string{"github.com/spf13/cobra"}},
	{pkg: "cmd/weir/internal/config", project: []string{"federation", "federation/quantity", "federation/spec"},
		outside: []string{"k8s.io/apimachinery/pkg/util/validation", "sigs.k8s.io/yaml"}},
	{pkg: "cmd/weir/internal/machine", outside: []string{"golang.org/x/sys"}},
	{pkg: "cmd/weir/internal/access",
		project: []string{"cmd/weir/internal/cli", "cmd/weir/internal/config", "federation", "federation/etcd",
			"federation/signed", "gateway/forward/forwardpb", "pki", "pki/transport"}, outside: []string{"github.com/spf13/cobra",
			"google.golang.org/grpc"}},
	{pkg: "cmd/weir/internal/process", project: []string{"cmd/weir/internal/access", "cmd/weir/internal/cli", "cmd/weir/internal/config",
		"api/v1alpha1", "federation", "federation/etcd", "federation/signed", "metrics", "pki"},
		tests: []string{"cmd/weir/internal/machine", "test/apiserver"}},
	{pkg: "cmd/weir/internal/clitest", project: []string{"cmd/weir/internal/access", "cmd/weir/internal/cli", "cmd/weir/internal/machine",
		"federation", "federation/keyring", "federation/memory", "gateway/forward/forwardpb", "pki"}},
	// Processes: each wires the packages of Weir together.
	{pkg: "cmd/weir/gatewaycmd",
		project: []string{"cmd/weir/internal/...", "cachepool", "cachepool/dir", "cachepool/zfs", "federation", "federation/archive",
			"federation/etcd", "federation/keyring", "federation/signed", "gateway", "gateway/meters", "gateway/pools",
			"gateway/traces", "pki",
			"store", "store/dir", "store/s3"},
		tests: []string{"cmd/weir/..."}},
	{pkg: "cmd/weir/operatorcmd", project: []string{"cmd/weir/internal/access", "cmd/weir/internal/cli", "cmd/weir/internal/process",
		"cmd/weir/pkicmd", "controllers", "controllers/certificates", "controllers/plan", "federation", "gateway/caching",
		"gateway/forward/forwardpb", "pki"}, tests: []string{"api/v1alpha1", "cachepool",
		"cmd/weir/internal/machine", "test/apiserver"}},
	{pkg: "cmd/weir/csicmd",
		project: []string{"cmd/weir/internal/cli", "cmd/weir/internal/process", "api/v1alpha1", "csi-driver", "csi-driver/...",
			"federation", "gateway/node/nodepb", "metrics", "pki", "pki/transport"}},
	// Commands of people.
	{pkg: "cmd/weir/pkicmd", project: []string{"cmd/weir/internal/cli", "cmd/weir/internal/machine", "pki"},
		outside: []string{"github.com/spf13/cobra", "sigs.k8s.io/yaml"}, tests: []string{"cmd/weir/internal/access"}},
	{pkg: "cmd/weir/preflightcmd", project: []string{"cmd/weir/internal/access", "cmd/weir/internal/cli", "cmd/weir/internal/config",
		"cmd/weir/gatewaycmd", "api/v1alpha1", "federation", "gateway/forward/forwardpb", "pki"}},
	{pkg: "cmd/weir/topcmd", project: []string{"cmd/weir/internal/access", "cmd/weir/internal/cli", "federation",
		"gateway/forward/forwardpb", "gateway/nfs", "gateway/report"}, outside: []string{"github.com/spf13/cobra"}},
	{pkg: "cmd/weir/cachecmd", project: []string{"cmd/weir/internal/access", "cmd/weir/internal/cli", "federation", "gateway/caching",
		"gateway/forward/forwardpb"}, outside: []string{"github.com/spf13/cobra"}, tests: []string{"cmd/weir/volumecmd"}},
	{pkg: "cmd/weir/supportcmd", project: []string{"cmd/weir/internal/access", "cmd/weir/internal/cli", "cmd/weir/internal/process",
		"cmd/weir/statuscmd", "api/v1alpha1", "federation", "gateway/forward/forwardpb"}, tests: []string{"cmd/weir/volumecmd"}},
	{pkg: "cmd/weir/setupcmd",
		project: []string{"cmd/weir/internal/cli", "cmd/weir/internal/process", "cmd/weir/pkicmd", "controllers/certificates",
			"federation/keyring", "pki"}, tests: []string{"api/v1alpha1"}},
	{pkg: "cmd/weir/auditcmd", project: []string{"cmd/weir/internal/access", "cmd/weir/internal/cli", "federation", "federation/users",
		"pki"}},
	{pkg: "cmd/weir/federationcmd", project: []string{"cmd/weir/internal/access", "cmd/weir/internal/cli", "cmd/weir/internal/machine",
		"federation", "pki"}, tests: []string{"federation/signed"}},
	{pkg: "cmd/weir/registrycmd", project: []string{"cmd/weir/internal/access", "cmd/weir/internal/cli", "cmd/weir/internal/config",
		"cmd/weir/internal/process", "federation", "federation/gatekeeper", "metrics", "pki"},
		outside: []string{"github.com/spf13/cobra", "github.com/prometheus/client_golang", "google.golang.org/grpc"},
		tests:   []string{"federation/etcd", "cmd/weir/statuscmd"}},
	{pkg: "cmd/weir/sitecmd", project: []string{"cmd/weir/internal/access", "cmd/weir/internal/cli", "cmd/weir/internal/process",
		"api/v1alpha1", "federation"}, tests: []string{"cmd/weir/volumecmd", "test/apiserver"}},
	{pkg: "cmd/weir/statuscmd", project: []string{"cmd/weir/internal/access", "cmd/weir/internal/cli", "federation", "gateway/report",
		"gateway/forward/forwardpb", "replica/protocol"}, outside: []string{"github.com/spf13/cobra", "google.golang.org/grpc"},
		tests: []string{"cmd/weir/volumecmd"}},
	{pkg: "cmd/weir/volumecmd", project: []string{"cmd/weir/internal/access", "cmd/weir/internal/cli", "federation", "federation/keyring",
		"federation/spec", "federation/users"}, outside: []string{"github.com/spf13/cobra", "github.com/google/uuid"},
		tests: []string{"cmd/weir/sitecmd", "cmd/weir/statuscmd"}},
	{pkg: "test/apiserver"},
	{pkg: "test/e2e/...", project: []string{"..."}},
	{pkg: "test/e2e/stage"}, // knows machines and networks, nothing of this project
	{pkg: "test/e2e/kube", project: []string{"hack/image", "test/e2e/stage"},
		outside: []string{"github.com/google/go-containerregistry", "k8s.io/api", "k8s.io/apimachinery"}},
	{pkg: "test/e2e/kube/pause", outside: stdlib},
	{pkg: "test/layout", outside: stdlib},
	{pkg: "test/scale", outside: stdlib,
		tests: []string{"api/v1alpha1", "federation", "federation/etcd", "federation/keyring", "federation/spec", "pki", "test/apiserver"}},
	{pkg: "hack/...", outside: stdlib},
	{pkg: "hack/metricsdocs", project: []string{"metrics"}, outside: stdlib},
	{pkg: "hack/image", outside: []string{"github.com/google/go-containerregistry", "github.com/klauspost/compress"}},
	{pkg: "hack/release", project: []string{"hack/image"}, outside: []string{"github.com/CycloneDX/cyclonedx-go",
		"github.com/google/go-containerregistry", "github.com/klauspost/compress", "golang.org/x/crypto/x509roots/fallback",
		"golang.org/x/mod"}},
	{pkg: "charts", outside: stdlib, tests: []string{"api/v1alpha1", "controllers/certificates", "metrics", "pki"}}, // a Helm chart
}
