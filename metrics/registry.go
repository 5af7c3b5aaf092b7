// SPDX-License-Identifier: Apache-2.0

package metrics

var gatekeeper = []Part{Gatekeeper}

// The gatekeeper beside a member of the registry.
var (
	RegistryRequestSeconds = define(Definition{Name: "weir_registry_request_duration_seconds", Parts: gatekeeper, Kind: Histogram,
		Labels: []string{"method", "by", "code"}, Buckets: fine,
		Help: "How long requests of etcd's protocol took, with what the member behind it needed; of streams, how long they lasted. " +
			"By is the part of the federation that asked, and code gRPC's name of the result."})
	RegistryRefused = define(Definition{Name: "weir_registry_refused_total", Parts: gatekeeper, Kind: Counter, Labels: []string{"by",
		"kind"},
		Help: "Requests that were refused: of which part of the federation, and about which kind of record. " +
			"The log says whose each was, and why."})
	RegistryListening = define(Definition{Name: "weir_registry_listening", Parts: gatekeeper, Kind: Gauge,
		Help: "1 while the member of etcd behind it can be reached, and clients with it; else 0."})
)
