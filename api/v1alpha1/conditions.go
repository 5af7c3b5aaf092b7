// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types. Polarity: for Ready, Placed, Protected and Bound, True is good; for Reconciling and Stalled, which are those of
// kstatus, True means that something is under way or that it will not go on by itself, and they are absent otherwise.
const (
	// ConditionReady sums up: the object does what it says. Its reason is the most important of those that hold.
	ConditionReady = "Ready"
	// ConditionPlaced of a GeoVolumeContent: sites are chosen as the policy in force wants.
	ConditionPlaced = "Placed"
	// ConditionProtected of GeoVolume and GeoVolumeContent: as many copies as the policy wants are alive and not behind.
	ConditionProtected = "Protected"
	// ConditionBound of a GeoVolume: its PersistentVolume and PersistentVolumeClaim are there.
	ConditionBound = "Bound"
	// ConditionReconciling: the operator is at work, or waits for something that comes by itself.
	ConditionReconciling = "Reconciling"
	// ConditionInSync of a GeoVolumeContent that another cluster owns: absent, or False with NotOwner from when its spec was changed here,
	// and put back, to the owner's next change. The message names the fields and the owner's values.
	ConditionInSync = "InSync"
	// ConditionStalled: a person has to do something; the message says what.
	ConditionStalled = "Stalled"
)

// Reasons, of Ready where nothing else is said.
const (
	// ReasonBound, of Bound: both objects are there and bound to each other.
	ReasonBound = "Bound"
	// ReasonPlaced, of Placed.
	ReasonPlaced = "Placed"
	// ReasonProtected, of Protected.
	ReasonProtected = "Protected"
	// ReasonReady, with True: all is well.
	ReasonReady = "Ready"
	// ReasonDegraded, with True: it is served, with fewer or later copies than the policy wants.
	ReasonDegraded = "Degraded"
	// ReasonWritesWait: reads are served; writes wait, for members or for room on a pool.
	ReasonWritesWait = "WritesWait"
	// ReasonCreating: the volume has no home yet.
	ReasonCreating = "Creating"
	// ReasonMoving: no home serves it now; another takes over by itself.
	ReasonMoving = "Moving"
	// ReasonHomeLost: the home is lost and nothing takes over by itself; a person decides.
	ReasonHomeLost = "HomeLost"
	// ReasonUnplaceable: no choice of sites satisfies the policy.
	ReasonUnplaceable = "Unplaceable"
	// ReasonPolicyNotFound: there is no VolumePolicy of that name.
	ReasonPolicyNotFound = "PolicyNotFound"
	// ReasonInvalid: the wish contradicts itself, or what the volume already is.
	ReasonInvalid = "Invalid"
	// ReasonNameTaken: another volume of the federation has the name, or another cluster the site's.
	ReasonNameTaken = "NameTaken"
	// ReasonNotFound: the volume to import is not there.
	ReasonNotFound = "NotFound"
	// ReasonNotGranted: the owner of the volume to import has not granted it to this site and namespace.
	ReasonNotGranted = "NotGranted"
	// ReasonInUse: it is being deleted, and others still use it; the message names them.
	ReasonInUse = "InUse"
	// ReasonDeleting: it is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonDeleted: the volume was deleted by its owner and is in the trash.
	ReasonDeleted = "Deleted"
	// ReasonSuperseded: the ownership went to another cluster while this one was declared lost. Nothing is written or deleted here.
	ReasonSuperseded = "Superseded"
	// ReasonNotOwner, of InSync and in events: a field was changed here that only the owner may change; the owner's value was put back.
	ReasonNotOwner = "NotOwner"
	// ReasonRegistryUnavailable: the registry does not answer; what is shown is what was last heard.
	ReasonRegistryUnavailable = "RegistryUnavailable"
	// ReasonConflict: an object of that name is there and belongs to somebody else.
	ReasonConflict = "Conflict"
	// ReasonNoGateway: no gateway of the site is alive.
	ReasonNoGateway = "NoGateway"
	// ReasonLost: a person declared the site lost.
	ReasonLost = "Lost"
	// ReasonUpdating: a new policy or size is not in force at all gateways yet.
	ReasonUpdating = "Updating"
)
