// SPDX-License-Identifier: Apache-2.0

package metrics

var lentStore = []Part{LentStore}

// A store in front of room that a site lends.
var (
	StoreRefused = define(Definition{Name: "weir_store_refused_total", Parts: lentStore, Kind: Counter, Labels: []string{"op"},
		Help: "Requests that the store refused, by what they asked for. The log says whose each was, and why."})
	StoreAgreements = define(Definition{Name: "weir_store_agreements", Parts: lentStore, Kind: Gauge,
		Help: "Agreements under which something is stored."})
	StoreStored = define(Definition{Name: "weir_store_stored_bytes", Parts: lentStore, Kind: Gauge,
		Help: "How much is stored for guests, of all agreements together."})
)
