// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types. Reconciling and Stalled are those of kstatus; they have Ready's reason and
// message.
const (
	// ConditionReady sums up: the object does what it says. Its reason is the most important of
	// those that hold. Polarity: True is good.
	ConditionReady = "Ready"
	// ConditionPlaced, of a GeoVolumeContent: sites are chosen as the policy in force wants.
	// Polarity: True is good.
	ConditionPlaced = "Placed"
	// ConditionProtected, of GeoVolume and GeoVolumeContent: as many copies as the policy wants are
	// alive and not behind. Polarity: True is good.
	ConditionProtected = "Protected"
	// ConditionBound, of a GeoVolume: its PersistentVolume and PersistentVolumeClaim are there, and
	// bound to each other. Polarity: True is good.
	ConditionBound = "Bound"
	// ConditionReconciling: the operator is at work, or waits for something that comes by itself.
	// Polarity: True means that waiting helps; absent otherwise.
	ConditionReconciling = "Reconciling"
	// ConditionInSync, of a GeoVolumeContent that another cluster owns: its spec was changed here
	// and put back; the message names the fields. It goes with the owner's next change. Polarity:
	// False, with NotOwner, tells of the edit; absent otherwise.
	ConditionInSync = "InSync"
	// ConditionHealthy, of a CachePool: its file system answers; its ZFS pool is ONLINE, and zpool
	// has nothing to say. Polarity: True is good.
	ConditionHealthy = "Healthy"
	// ConditionPoolDegraded, of a CachePool of ZFS: devices fail, or data was lost; the message
	// names what, and a remedy. Polarity: False is good.
	ConditionPoolDegraded = "Degraded"
	// ConditionSlogMissing, of a CachePool of ZFS: a log device that should be there is not; writes
	// are as durable, and slower. Polarity: False is good.
	ConditionSlogMissing = "SlogMissing"
	// ConditionReservesKept, of a CachePool: what policies of volumes reserve of it can be kept.
	// Else the message names them. Polarity: True is good.
	ConditionReservesKept = "ReservesKept"
	// ConditionNearlyFull, of a CachePool: nine tenths of its ZFS pool or file system are used.
	// Polarity: False is good.
	ConditionNearlyFull = "NearlyFull"
	// ConditionNotDurable, of a CachePool of ZFS: a dataset's property sync is disabled, so what is
	// acknowledged would be lost with the power. Polarity: False is good.
	ConditionNotDurable = "NotDurable"
	// ConditionRewound, of a CachePool of ZFS: datasets of volumes went back to an earlier state;
	// their copies are made anew. Polarity: False is good.
	ConditionRewound = "Rewound"
	// ConditionUsable, of a StorageAgreement: the guest can write there. Polarity: True is good.
	ConditionUsable = "Usable"
	// ConditionMoveNeeded, of a StorageAgreement: it is the move of this cluster's side; the
	// message says what is to be done, and the reason is the phase. Polarity: False is good.
	ConditionMoveNeeded = "MoveNeeded"
	// ConditionCountsAgree, of a StorageUsage: both sides counted the same, but for one in a
	// thousand. Polarity: True is good.
	ConditionCountsAgree = "CountsAgree"
	// ConditionExceeded, of a PlacementQuota: more is placed than it allows, since it was lowered
	// or selects more; what is placed stays, and nothing is added. Polarity: False is good.
	ConditionExceeded = "Exceeded"
	// ConditionStalled: a person has to do something; the message says what. Polarity: True means
	// that it does not go on by itself; absent otherwise.
	ConditionStalled = "Stalled"
)

// Reasons, of Ready and with False where nothing else is said.
const (
	// ReasonBound, of Bound with True: both objects are there and bound to each other.
	ReasonBound = "Bound"
	// ReasonPlaced, of Placed with True: the copies are at sites that satisfy the policy.
	ReasonPlaced = "Placed"
	// ReasonProtected, of Protected with True: there are as many good copies as the policy wants.
	ReasonProtected = "Protected"
	// ReasonReady, of Ready with True: all is well.
	ReasonReady = "Ready"
	// ReasonDegraded, of Ready with True and of Protected with False: it is served, with fewer or
	// later copies than the policy wants. Of a CachePool: it works, and one of its conditions tells
	// of something that a person has to see to.
	ReasonDegraded = "Degraded"
	// ReasonWritesWait: reads are served; writes wait, for members or for room on a pool.
	ReasonWritesWait = "WritesWait"
	// ReasonOpening: the home opens its copy, and serves nothing yet; it may replay its log.
	ReasonOpening = "Opening"
	// ReasonFilling: the volume is made of a snapshot, does not have all of it yet, and is served
	// then.
	ReasonFilling = "Filling"
	// ReasonCreating, also of Protected and Bound: the volume has no home yet, or its objects are
	// being made.
	ReasonCreating = "Creating"
	// ReasonMoving: no home serves it now; another takes over by itself.
	ReasonMoving = "Moving"
	// ReasonHomeLost: the home is lost and nothing takes over by itself; a person decides.
	ReasonHomeLost = "HomeLost"
	// ReasonUnplaceable, also of Placed: no choice of sites satisfies the policy. A volume that is
	// there stays as it was.
	ReasonUnplaceable = "Unplaceable"
	// ReasonPolicyNotFound, also of Placed: this cluster has no VolumePolicy of that name.
	ReasonPolicyNotFound = "PolicyNotFound"
	// ReasonInvalid, also of Placed: the wish contradicts itself, or what the volume or the site
	// already is.
	ReasonInvalid = "Invalid"
	// ReasonNameTaken: another volume of the federation has the name, or another cluster the
	// site's.
	ReasonNameTaken = "NameTaken"
	// ReasonNotFound: the volume to import is not there, or the registry does not know any more
	// what it knew once. Of a Site: no such site is registered. Of a GeoVolumeSnapshot: there is
	// no such claim, or the snapshot was dropped.
	ReasonNotFound = "NotFound"
	// ReasonNotGranted: the owner of the volume to import has not granted it to this site and
	// namespace.
	ReasonNotGranted = "NotGranted"
	// ReasonInUse: it is being deleted, and others still use it; the message names them.
	ReasonInUse = "InUse"
	// ReasonDeleting, also of Bound: it is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonDeleted: the volume was deleted by its owner and is in the trash.
	ReasonDeleted = "Deleted"
	// ReasonSuperseded: the ownership went to another cluster while this one was declared lost.
	// Nothing is written or deleted here.
	ReasonSuperseded = "Superseded"
	// ReasonNotOwner, of InSync with False and of events: a field was changed here that only the
	// owner may change; the owner's value was put back. Of a GeoVolumeSnapshot: another cluster
	// owns the volume.
	ReasonNotOwner = "NotOwner"
	// ReasonRegistryUnavailable, also of Reconciling beside a Ready that is True: the registry does
	// not answer; what is shown is what was last heard.
	ReasonRegistryUnavailable = "RegistryUnavailable"
	// ReasonConflict: an object of that name is there and belongs to somebody else; of a
	// GeoVolumeSnapshot, a snapshot of that name.
	ReasonConflict = "Conflict"
	// ReasonNoGateway, of a Site or a CachePool: its gateway is not alive, or has never registered.
	ReasonNoGateway = "NoGateway"
	// ReasonNoAnswer, of Ready and of Healthy with False: the gateway is alive and does not say how
	// its pool is, or zpool does not answer the gateway.
	ReasonNoAnswer = "NoAnswer"
	// ReasonNotDurable, of a CachePool: the condition NotDurable tells why.
	ReasonNotDurable = "NotDurable"
	// ReasonDiffers, of a CachePool: the gateway's pool is not as the spec says; the message names
	// the field.
	ReasonDiffers = "Differs"
	// ReasonKept, of a CachePool: what policies reserve of it is kept.
	ReasonKept = "Kept"
	// ReasonTooMuch, of a CachePool: policies reserve more of it than can be kept; the message
	// names the volumes.
	ReasonTooMuch = "TooMuch"
	// ReasonLost, of a Site: a person declared it lost.
	ReasonLost = "Lost"
	// ReasonRefused, of a StorageOffer, StorageRequest or StorageAgreement: what the spec says is
	// not possible, by what both sides have said before; the message says why.
	ReasonRefused = "Refused"
	// ReasonExhausted, of a StorageOffer with True: all of it went to agreements. Of a
	// PlacementQuota with True: all of it is used, with per: Namespace by a namespace at least. Of
	// a GeoVolumeSnapshot: as many are asked for as there can be.
	ReasonExhausted = "Exhausted"
	// ReasonMissed, of a GeoVolumeSnapshot with hold: changes are not held any more, and it will
	// not be taken.
	ReasonMissed = "Missed"
	// ReasonOldGateway, of a GeoVolumeSnapshot with hold: a gateway of the federation is of a
	// release that cannot hold changes; the message names it.
	ReasonOldGateway = "OldGateway"
	// ReasonClosed, of a StorageOffer with True: nobody may ask any more.
	ReasonClosed = "Closed"
	// ReasonNotForUs, of a StorageOffer with True: this cluster's organization may not ask for it.
	ReasonNotForUs = "NotForUs"
	// ReasonNothingCounted, of a StorageUsage with True: a side has counted nothing yet.
	ReasonNothingCounted = "NothingCounted"
	// ReasonDisagree, of CountsAgree with False: the message says by what both sides disagree.
	ReasonDisagree = "Disagree"
	// ReasonExceeded, of a PlacementQuota with True, and of Exceeded with True: more is placed than
	// it allows.
	ReasonExceeded = "Exceeded"
	// ReasonWithin, of Exceeded with False: no more is placed than the quota allows.
	ReasonWithin = "Within"
	// ReasonUpdating, of Ready with True: a new policy or size is not in force at all gateways yet.
	ReasonUpdating = "Updating"
)
