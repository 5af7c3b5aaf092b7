// SPDX-License-Identifier: Apache-2.0

package metrics

var gateway = []Part{Gateway}

// What clients ask for.
var (
	NFSOperationSeconds = define(Definition{Name: "weir_nfs_operation_duration_seconds", Parts: gateway, Kind: Histogram,
		Labels: []string{"operation"}, Buckets: fine,
		Help: "How long operations of NFS took, with all that they waited for. The labels are the names of RFC 8881, 7862 and 8276."})
	VolumeOperationSeconds = define(Definition{Name: "weir_volume_operation_duration_seconds", Parts: gateway, Kind: Histogram,
		Labels: []string{"volume", "kind"}, Buckets: coarse,
		Help: "How long operations on a volume took at this gateway. Kind is read, write, commit or metadata."})
	VolumeErrors = define(Definition{Name: "weir_volume_operation_errors_total", Parts: gateway, Kind: Counter,
		Labels: []string{"volume", "error"},
		Help: "Operations that failed for another reason than what the client asked for. " +
			"Error is io (data cannot be read or written), no_space, stale, refused (the client may not) or server. After these " +
			"the client asks again later: no_home (no home answers, or it waits), grace (clients reclaim what they held before a " +
			"restart) and busy (the volume waits, and holds its share of what the client may ask for at a time)."})
	VolumeReadBytes = define(Definition{Name: "weir_volume_read_bytes_total", Parts: gateway, Kind: Counter, Labels: []string{"volume"},
		Help: "Bytes of files that clients read."})
	VolumeWrittenBytes = define(Definition{Name: "weir_volume_written_bytes_total", Parts: gateway, Kind: Counter,
		Labels: []string{"volume"}, Help: "Bytes of files that clients wrote."})
	NFSRequests = define(Definition{Name: "weir_nfs_requests_total", Parts: gateway, Kind: Counter,
		Help: "RPC calls of NFS clients."})
	NFSRepeats = define(Definition{Name: "weir_nfs_repeats_total", Parts: gateway, Kind: Counter,
		Help: "Requests that were sent again, and were answered with what they were answered before."})
	NFSDropped = define(Definition{Name: "weir_nfs_dropped_total", Parts: gateway, Kind: Counter,
		Help: "Requests that were not answered, because their outcome is not known. The client asks again."})
	NFSPanics = define(Definition{Name: "weir_nfs_panics_total", Parts: gateway, Kind: Counter,
		Help: "Operations of clients, and calls of other gateways, that a mistake in the gateway ended. The log has the " +
			"stack: please report it."})
	NFSRefused = define(Definition{Name: "weir_nfs_refused_total", Parts: gateway, Kind: Counter, Labels: []string{"reason"},
		Help: "What was refused before it was executed. Of requests for a volume the reason is not_admitted, unknown (there is no " +
			"such volume, or it is deleted), not_served (not by this gateway, or not yet), slots (the volume waits, and holds its " +
			"share of what the client may ask for at a time), port or certificate (the volume asks for another one, or TLS did not " +
			"begin). Of clients it is stranger (no volume admits it), credential (it is not AUTH_SYS), clients, sessions and states " +
			"(it, its address, or all together have too many; states are opens and locks). Connections are too many, and idle are " +
			"those that were closed because they did not get on. What has to come again is memory (there is none for it or its " +
			"answer now) and setup (its address has several clients or sessions made or ended at this moment)."})
	NFSMemory = define(Definition{Name: "weir_nfs_memory_bytes", Parts: gateway, Kind: Gauge, Labels: []string{"of"},
		Help: "Memory that NFS clients take: of requests and replies under way, of states (opens and locks), and of sessions."})
	NFSMemoryLimit = define(Definition{Name: "weir_nfs_memory_limit_bytes", Parts: gateway, Kind: Gauge, Labels: []string{"of"},
		Help: "Memory that NFS clients may take (`clientMemory`). One alone gets two thirds of it."})
	NFSConnections = define(Definition{Name: "weir_nfs_connections", Parts: gateway, Kind: Gauge,
		Help: "Open connections of NFS clients."})
	NFSClients = define(Definition{Name: "weir_nfs_clients", Parts: gateway, Kind: Gauge,
		Help: "NFS clients with a lease: usually one for each node."})
	NFSSessions = define(Definition{Name: "weir_nfs_sessions", Parts: gateway, Kind: Gauge, Help: "Sessions of NFS clients."})
	NFSSlots    = define(Definition{Name: "weir_nfs_slots", Parts: gateway, Kind: Gauge,
		Help: "Requests that the sessions of NFS clients may have under way at a time, in all."})
	NFSSlotsUsed = define(Definition{Name: "weir_nfs_slots_used", Parts: gateway, Kind: Gauge,
		Help: "Requests that are under way in the sessions of NFS clients."})
	NFSOpens = define(Definition{Name: "weir_nfs_opens", Parts: gateway, Kind: Gauge, Help: "Files that clients have open."})
	NFSLocks = define(Definition{Name: "weir_nfs_locks", Parts: gateway, Kind: Gauge,
		Help: "Ranges of files that clients have locked."})
)

// CallsRefused are of other processes of the federation.
var CallsRefused = define(Definition{Name: "weir_gateway_calls_refused_total", Parts: gateway, Kind: Counter,
	Labels: []string{"by", "method"},
	Help: "Calls of other processes of the federation that were refused because of what their certificates are of: of which part, " +
		"and which method. The log says whose each was."})

// RecordsForged are of the registry.
var RecordsForged = define(Definition{Name: "weir_registry_records_forged_total", Parts: gateway, Kind: Counter,
	Labels: []string{"kind"},
	Help: "Records of the registry that do not count, since nobody has signed them who may write them: of which kind. Somebody wrote " +
		"them past the gatekeepers. The log says which. A gateway puts back what it knows."})

// Volumes and their copies.
var (
	VolumeRole = define(Definition{Name: "weir_volume_role", Parts: gateway, Kind: Gauge, Labels: []string{"volume", "role"},
		Help: "1 for the role of this gateway's copy: Home, Starting (home, and not serving yet), Follower, Candidate or Failed."})
	VolumeEpoch = define(Definition{Name: "weir_volume_epoch", Parts: gateway, Kind: Gauge, Labels: []string{"volume"},
		Help: "The epoch of the volume. It grows with each takeover and each move."})
	VolumeServing = define(Definition{Name: "weir_volume_serving", Parts: gateway, Kind: Gauge, Labels: []string{"volume"},
		Help: "At the home: 1 if the volume is served, 0 if its members' promises have run out and clients wait."})
	VolumePromised = define(Definition{Name: "weir_volume_promised_seconds", Parts: gateway, Kind: Gauge, Labels: []string{"volume"},
		Help: "At a home with other members: how long the promises of all of them still last, under which it serves. 0: not at all."})
	VolumeWaiting = define(Definition{Name: "weir_volume_requests_waiting", Parts: gateway, Kind: Gauge, Labels: []string{"volume"},
		Help: "Requests of this gateway's clients that it has not answered for more than 5 s."})
	VolumeStalled = define(Definition{Name: "weir_volume_stalled", Parts: gateway, Kind: Gauge, Labels: []string{"volume"},
		Help: "At the home: 1 if writes wait because there are fewer members than the policy asks for."})
	VolumeSnapshots = define(Definition{Name: "weir_volume_snapshots", Parts: gateway, Kind: Gauge, Labels: []string{"volume"},
		Help: "At the home: how many snapshots with names the volume has."})
	VolumeSnapshotProblem = define(Definition{Name: "weir_volume_snapshot_problem", Parts: gateway, Kind: Gauge,
		Labels: []string{"volume"},
		Help: "At the home: 1 if a snapshot could not be taken or dropped that was asked for or scheduled. It is tried again. " +
			"kubectl describe geovolumecontent, or weir volume snapshot list, says why."})
	VolumeProblem = define(Definition{Name: "weir_volume_copy_problem", Parts: gateway, Kind: Gauge, Labels: []string{"volume"},
		Help: "1 if a copy that should be open here is not. weir status says why."})
	ReplicaLagSeconds = define(Definition{Name: "weir_replica_lag_seconds", Parts: gateway, Kind: Gauge,
		Labels: []string{"volume", "gateway", "site"},
		Help:   "At the home: how long a copy at another gateway has been without something that the home has."})
	ReplicaLagBytes = define(Definition{Name: "weir_replica_lag_bytes", Parts: gateway, Kind: Gauge,
		Labels: []string{"volume", "gateway", "site"},
		Help:   "At the home: how much of the log a copy at another gateway does not have."})
	ReplicaState = define(Definition{Name: "weir_replica_state", Parts: gateway, Kind: Gauge,
		Labels: []string{"volume", "gateway", "site", "state"},
		Help: "At the home: 1 for the state of each copy: Home, Member, Follower, Joining (it still copies) or Lost (it does not " +
			"answer)."})
	ReplicaStuckSeconds = define(Definition{Name: "weir_replica_stuck_seconds", Parts: gateway, Kind: Gauge,
		Labels: []string{"volume", "gateway", "site"},
		Help:   "At the home: how long a copy that answers has stored nothing, if that is too long; else 0. Its disk is full, or ails."})
	CommitSeconds = define(Definition{Name: "weir_commit_duration_seconds", Parts: gateway, Kind: Histogram, Labels: []string{"volume"},
		Buckets: coarse,
		Help: "At the home: how long a change waited until all members had it on disk. Of changes that wait at the same time only one " +
			"is timed."})
	CommitPartSeconds = define(Definition{Name: "weir_commit_part_duration_seconds", Parts: gateway, Kind: Histogram,
		Labels: []string{"part"}, Buckets: fine,
		Help: "What weir_commit_duration_seconds consists of. Part is local, until it was on the home's own disk, or members, from then " +
			"until the slowest member had it."})
	LogSyncSeconds = define(Definition{Name: "weir_log_sync_duration_seconds", Parts: gateway, Kind: Histogram, Buckets: fine,
		Help: "How long an fsync of a log on the pool took."})
	RoleChanges = define(Definition{Name: "weir_role_changes_total", Parts: gateway, Kind: Counter, Labels: []string{"role"},
		Help: "How often a copy here took a role. Home counts takeovers and moves to here."})
	ControlSwaps = define(Definition{Name: "weir_control_swaps_total", Parts: gateway, Kind: Counter, Labels: []string{"outcome"},
		Help: "Attempts to change a volume's control record. Outcome is done, conflict (another gateway was faster), unknown or not_made " +
			"(the registry could not)."})
	Forwarded = define(Definition{Name: "weir_forwarded_operation_duration_seconds", Parts: gateway, Kind: Histogram,
		Labels: []string{"result"}, Buckets: fine,
		Help: "How long operations took that another gateway, the home, was asked for. Result is ok, or failed: it was asked again, or " +
			"the client got the error."})
)

// Where data are kept.
var (
	PoolLimitBytes = define(Definition{Name: "weir_pool_limit_bytes", Parts: gateway, Kind: Gauge, Labels: []string{"pool"},
		Help: "What the cache pool may take."})
	PoolUsedBytes = define(Definition{Name: "weir_pool_used_bytes", Parts: gateway, Kind: Gauge, Labels: []string{"pool"},
		Help: "What is taken of the cache pool. A full pool evicts what is in the store."})
	PoolReservedBytes = define(Definition{Name: "weir_pool_reserved_bytes", Parts: gateway, Kind: Gauge, Labels: []string{"pool"},
		Help: "The part of the limit that only deletes may use."})
	PoolCondition = define(Definition{Name: "weir_pool_condition", Parts: gateway, Kind: Gauge, Labels: []string{"pool", "type"},
		Help: "What holds of the storage below the pool: 1 or 0. Type is Healthy, which is good, or Degraded, SlogMissing, NearlyFull, " +
			"NotDurable or Rewound, which are not. What is not known is not there."})
	PoolVolumeBytes = define(Definition{Name: "weir_pool_volume_bytes", Parts: gateway, Kind: Gauge, Labels: []string{"volume", "what"},
		Help: "What a volume takes of the pool. What is log, metadata or cache: blocks that were read from elsewhere."})
	BlockReadBytes = define(Definition{Name: "weir_block_read_bytes_total", Parts: gateway, Kind: Counter,
		Labels: []string{"from"},
		Help: "Sealed blocks that were read for copies and were not in memory. From is log or cache, which are on " +
			"the pool, or elsewhere: a store, or another gateway."})
	CacheHits = define(Definition{Name: "weir_cache_hits_total", Parts: gateway, Kind: Counter,
		Help: "Blocks that were read and were in memory."})
	CacheMisses = define(Definition{Name: "weir_cache_misses_total", Parts: gateway, Kind: Counter,
		Help: "Blocks that were read and were not in memory."})
	CacheBytes = define(Definition{Name: "weir_cache_bytes", Parts: gateway, Kind: Gauge,
		Help: "Bytes of blocks in memory."})
	CacheLimitBytes = define(Definition{Name: "weir_cache_limit_bytes", Parts: gateway, Kind: Gauge,
		Help: "Bytes of blocks that may be in memory."})
	UploadQueueBytes = define(Definition{Name: "weir_upload_queue_bytes", Parts: gateway, Kind: Gauge, Labels: []string{"volume"},
		Help: "Sealed and committed segments here that are not in the site's store yet."})
	StoredBytes = define(Definition{Name: "weir_volume_stored_bytes", Parts: gateway, Kind: Gauge, Labels: []string{"volume"},
		Help: "Segments that are in the site's store, as the log of the copy here noted. weir df says what of them is used for what, " +
			"and counts what else the store has."})
	CondemnedBytes = define(Definition{Name: "weir_volume_condemned_bytes", Parts: gateway, Kind: Gauge, Labels: []string{"volume"},
		Help: "Segments that nothing uses any more, and that are not dropped here yet. They go ten minutes after they were condemned."})
	PackBytes = define(Definition{Name: "weir_volume_pack_bytes", Parts: gateway, Kind: Gauge, Labels: []string{"volume"},
		Help: "Packs that are in the site's store, as far as this gateway looked since it started."})
	PacksFetched = define(Definition{Name: "weir_volume_packs_fetched_total", Parts: gateway, Kind: Counter, Labels: []string{"volume"},
		Help: "Packs that the copy here could not make from what it has, and got from another gateway. A copy that begins with a " +
			"checkpoint gets all that way; else something is damaged or missing here, which the log names."})
	CheckpointDiffers = define(Definition{Name: "weir_volume_checkpoint_differs", Parts: gateway, Kind: Gauge, Labels: []string{"volume"},
		Help: "1 if the newest checkpoint that the copy here made is not what the home made of the same state: one of the two copies is " +
			"damaged."})
	Uploads = define(Definition{Name: "weir_uploads_total", Parts: gateway, Kind: Counter, Labels: []string{"result"},
		Help: "Segments that were sent to the site's store. Result is ok, failed, or damaged: the segment " +
			"here is damaged, and was not sent. What is not ok is tried again."})
	Scrubbed = define(Definition{Name: "weir_scrubbed_segments_total", Parts: gateway, Kind: Counter, Labels: []string{"result"},
		Help: "Segments on the pool that were read again to find damage, each once in seven days. Result is whole, healed " +
			"(from another copy), or damaged: no copy in reach is whole. That is tried again each hour."})
	UploadedBytes = define(Definition{Name: "weir_uploaded_bytes_total", Parts: gateway, Kind: Counter,
		Help: "Bytes of segments that were sent to the site's store."})
)

// The federation, as this gateway sees it.
var (
	RegistryCallSeconds = define(Definition{Name: "weir_registry_call_duration_seconds", Parts: gateway, Kind: Histogram,
		Labels: []string{"call", "result"}, Buckets: fine,
		Help: "How long calls of the registry took. Call is etcd's name for it. Result is ok or failed."})
	RegistryTrusted = define(Definition{Name: "weir_registry_trusted", Parts: gateway, Kind: Gauge,
		Help: "1 if the registry is believed, 0 if it went back to an earlier state: nothing changes then until weir registry reconcile."})
	RegistrySilentSeconds = define(Definition{Name: "weir_registry_silent_seconds", Parts: gateway, Kind: Gauge,
		Help: "How long ago the registry last answered, and was watched. What is known of heartbeats is as old. It is asked every 5 s."})
	GatewayAlive = define(Definition{Name: "weir_gateway_alive", Parts: gateway, Kind: Gauge, Labels: []string{"gateway", "site"},
		Help: "For each registered gateway of the federation: 1 if it has a heartbeat in the registry."})
	ClockDisputed = define(Definition{Name: "weir_gateway_clock_disputed", Parts: gateway, Kind: Gauge,
		Help: "1 if something was old enough to be dropped for good, and was not, since the clocks of other gateways do not agree with " +
			"this one's, or none of them answers."})
	GatewayReady = define(Definition{Name: "weir_gateway_ready", Parts: gateway, Kind: Gauge,
		Help: "1 if this gateway is ready for clients."})
	VolumesWithout = define(Definition{Name: "weir_volumes_without_metrics", Parts: []Part{Gateway, Operator}, Kind: Gauge,
		Help: "Volumes that this gateway or operator has no metrics of, because there are too many."})
	CertificateEnd = define(Definition{Name: "weir_certificate_expiry_timestamp_seconds", Parts: []Part{Gateway, Operator, CSI},
		Kind: Gauge, Help: "When the certificate of the process ends, in seconds since 1970."})
	CharterSerial = define(Definition{Name: "weir_charter_serial", Parts: []Part{Gateway, Operator, CSI}, Kind: Gauge,
		Help: "Serial of the federation's charter that the process goes by; 0: it knows none. CSI drivers follow none."})
	Info = define(Definition{Name: "weir_info", Parts: []Part{Gateway, Operator, CSI}, Kind: Gauge,
		Labels: []string{"part", "version", "federation", "organization", "site", "name"},
		Help:   "1. Which process it is. Join others with it by instance."})
)
